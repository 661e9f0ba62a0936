// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `hub setup agents`: what SAPI has to know of our agents, and the agents on the nodes, by sdcadm and a script that
//! deploy/shar made. What nodes have is what CNAPI says; a node that has it is left alone.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use daemon::command::{Call, Commands, Program};
use daemon::text::counted;
use sdc_clients::cnapi::{Cnapi, Server, ServerQuery};
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::sapi::{Object, Sapi, text};
use super::site::{Site, agreed, http};

/// Those of our agents that upstream does not know. sdcadm makes the services of the others, which stay as they are.
const OURS_ALONE: [&str; 2] = ["fleet-agent", "migration-agent"];
/// What new nodes install.
const LATEST: &str = "/usbkey/extra/agents/latest";
/// What our agents wait for, of the application's metadata.
const AWAITED: [(&str, &str); 2] =
    [("migration-agent", "migration_service_url"), ("fleet-agent", "fleet_servers")];
/// sdcadm gives a node 20 minutes, and does five at once.
const DEADLINE: Duration = Duration::from_secs(24 * 3600);
/// The head of the script that is read.
const HEAD: u64 = 16 * 1024;

/// Put our agents on the nodes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The script that deploy/shar made: agents-hub-….sh has our agents alone, agents-all-….sh upstream's other agents
    /// too, and new nodes get it from then on.
    #[arg(value_name = "FILE")]
    shar: PathBuf,
    /// Only this node; may be given several times (default: each that is set up).
    #[arg(long, value_name = "UUID")]
    server: Vec<String>,
    /// SAPI (default: as /usbkey/config says).
    #[arg(long, value_name = "URL")]
    sapi: Option<String>,
    /// CNAPI (default: as /usbkey/config says).
    #[arg(long, value_name = "URL")]
    cnapi: Option<String>,
    /// Say what would be done, and do nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
}

/// The script.
#[derive(Clone, Debug)]
struct Shar {
    file: String,
    /// Upstream's other agents are in it: new nodes can begin with it.
    is_whole: bool,
    /// The image of each agent of ours.
    images: Vec<(String, String)>,
}

impl Shar {
    fn read(path: &Path) -> anyhow::Result<Shar> {
        let file = path.display().to_string();
        let head = File::open(path).with_context(|| file.clone())?.take(HEAD);
        let (mut is_whole, mut images) = (false, Vec::new());
        for line in BufReader::new(head).split(b'\n') {
            let line = String::from_utf8_lossy(&line.with_context(|| file.clone())?).into_owned();
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["exit", ..] => break,
                ["#", "whole"] => is_whole = true,
                ["#", "agent", name, image] => images.push((name.to_owned(), image.to_owned())),
                _ => {}
            }
        }
        // sdcadm takes no script of another name.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if images.is_empty() || !name.starts_with("agents-") || !name.ends_with(".sh") {
            return Err(Refusal::NotOurShar(path.to_owned()).into());
        }
        Ok(Shar { file, is_whole, images })
    }

    /// Each of our agents on the node is the one in the script.
    fn is_on(&self, server: &Server) -> bool {
        let agents = server.other.get("agents").and_then(Value::as_array);
        let has = |name: &str, image: &str| {
            let mut all = agents.into_iter().flatten();
            all.any(|it| it["name"] == name && it["image_uuid"] == image)
        };
        self.images.iter().all(|(name, image)| has(name, image))
    }
}

/// What is there.
struct Seen {
    /// Agents of which SAPI has no service.
    unknown: Vec<&'static str>,
    /// Nodes that have other agents: those that run, and the others.
    behind: Vec<String>,
    away: Vec<String>,
    /// What new nodes install.
    latest: Option<PathBuf>,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    CreateService(&'static str),
    Update(Vec<String>),
    Latest,
}

fn steps(seen: &Seen, shar: &Shar, of_all: bool) -> Vec<Step> {
    let mut steps: Vec<Step> = seen.unknown.iter().map(|name| Step::CreateService(name)).collect();
    if !seen.behind.is_empty() {
        steps.push(Step::Update(seen.behind.clone()));
    }
    let is_latest = seen.latest.as_ref().is_some_and(|latest| {
        latest.file_name().is_some() && latest.file_name() == Path::new(&shar.file).file_name()
    });
    // One node is tried before new ones begin with it.
    if shar.is_whole && of_all && !is_latest {
        steps.push(Step::Latest);
    }
    steps
}

impl Step {
    /// Returns the words of the command, but for the program.
    fn update(&self, file: &str) -> Vec<String> {
        let mut words =
            ["experimental", "update-agents", file, "--yes"].map(str::to_owned).to_vec();
        match self {
            Step::Latest => words.push("--just-update-symlink".to_owned()),
            Step::Update(servers) => {
                words.push("--skip-latest-symlink".to_owned());
                words.extend(servers.iter().cloned());
            }
            Step::CreateService(_) => {}
        }
        words
    }

    fn says(&self, shar: &Shar) -> String {
        match self {
            Step::CreateService(name) => {
                format!("make the service {name} of type agent in SAPI")
            }
            Step::Update(servers) => {
                let names: Vec<&str> = shar.images.iter().map(|(name, _)| name.as_str()).collect();
                format!(
                    "install {} on {}: sdcadm {}",
                    names.join(", "),
                    counted(servers.len(), "node", "nodes"),
                    self.update(&shar.file).join(" ")
                )
            }
            Step::Latest => format!(
                "give new nodes these agents ({LATEST}): sdcadm {}",
                self.update(&shar.file).join(" ")
            ),
        }
    }

    fn back(&self, shar: &Shar, latest: Option<&Path>) -> String {
        // The link has a path or a name of its own folder.
        let before = latest.map(|it| Path::new(LATEST).with_file_name("").join(it));
        let before = before.map_or_else(
            || "UPSTREAM'S-AGENTS-SHAR".to_owned(),
            |before| before.display().to_string(),
        );
        match self {
            Step::CreateService(_) => "sdc-sapi /services/UUID -X DELETE".to_owned(),
            Step::Latest => format!("sdcadm {}", self.update(&before).join(" ")),
            Step::Update(servers) => {
                let own = shar.images.iter().map(|(name, _)| name.as_str());
                let own = own.filter(|name| !["net-agent", "vm-agent"].contains(name));
                format!(
                    "sdcadm {}; then sdc-oneachnode -n {} '/opt/smartdc/agents/bin/apm uninstall {}'",
                    self.update(&before).join(" "),
                    servers.join(","),
                    own.collect::<Vec<_>>().join(" ")
                )
            }
        }
    }
}

/// Runs it.
pub async fn setup(args: &Args, commands: &dyn Commands, root: &Path) -> anyhow::Result<ExitCode> {
    let shar = Shar::read(&args.shar)?;
    let site = Site::read(root);
    let sapi = Sapi::new(http(&site.url(args.sapi.as_deref(), "sapi")?)?);
    let cnapi = Cnapi::new(http(&site.url(args.cnapi.as_deref(), "cnapi")?)?);
    let look = async || look(args, &shar, &sapi, &cnapi, root).await;
    let seen = look().await?;
    let left = steps(&seen, &shar, args.server.is_empty());
    let latest = seen.latest.as_deref();
    let said = left.iter().map(|step| (step.says(&shar), Some(step.back(&shar, latest))));
    let goes_on = agreed(said, args.yes || args.dry_run)?;
    if args.dry_run || !goes_on {
        return Ok(ended(&left, &seen));
    }
    let application = sapi.application().await?.context("SAPI has no application sdc")?;
    for step in &left {
        eprintln!("{}", step.says(&shar));
        let done = perform(step, &shar, &sapi, &application, commands).await;
        done.with_context(|| format!("did not {}; run this again to go on", step.says(&shar)))?;
    }
    let seen = look().await?;
    for node in &seen.behind {
        println!("{node} does not have them: /var/log/sdcadm has what sdcadm did");
    }
    for node in &seen.away {
        println!("{node} does not run and does not have them: run this again when it runs");
    }
    for (agent, key) in AWAITED {
        if text(&application, "metadata", key).is_empty() {
            println!("{agent} waits until the application sdc has {key}: sapiadm update");
        }
    }
    Ok(ended(&steps(&seen, &shar, args.server.is_empty()), &seen))
}

fn ended(left: &[Step], seen: &Seen) -> ExitCode {
    if left.is_empty() && seen.away.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Looks at SAPI and the nodes; refuses a service that is not ours.
async fn look(
    args: &Args,
    shar: &Shar,
    sapi: &Sapi,
    cnapi: &Cnapi,
    root: &Path,
) -> anyhow::Result<Seen> {
    let mut unknown = Vec::new();
    for name in OURS_ALONE {
        match sapi.service(name).await? {
            None => unknown.push(name),
            Some(found) => {
                let is_ours = text(&found, "metadata", "HUB_PROGRAM") == name;
                if !is_ours || text(&found, "", "type") != "agent" {
                    return Err(Refusal::NotOurs(name).into());
                }
            }
        }
    }
    let query = ServerQuery {
        uuids: args.server.clone(),
        setup: Some(true),
        agents: true,
        ..ServerQuery::default()
    };
    let servers = cnapi.list_servers(&query).await?;
    if let Some(lacks) = args.server.iter().find(|it| !servers.iter().any(|one| one.uuid == **it)) {
        bail!("CNAPI has no node {lacks} that is set up");
    }
    let behind = servers.into_iter().filter(|server| !shar.is_on(server));
    let (behind, away): (Vec<Server>, Vec<Server>) =
        behind.partition(|server| server.status.as_deref() == Some("running"));
    let uuids = |servers: Vec<Server>| servers.into_iter().map(|it| it.uuid).collect();
    let latest = std::fs::read_link(root.join(LATEST.trim_start_matches('/'))).ok();
    Ok(Seen { unknown, behind: uuids(behind), away: uuids(away), latest })
}

async fn perform(
    step: &Step,
    shar: &Shar,
    sapi: &Sapi,
    application: &Object,
    commands: &dyn Commands,
) -> anyhow::Result<()> {
    if let Step::CreateService(name) = step {
        let service = json!({
            "name": name, "type": "agent", "application_uuid": text(application, "", "uuid"), "manifests": {},
            "params": { "tags": { "smartdc_role": name, "smartdc_type": "core" } },
            "metadata": { "SERVICE_NAME": name, "HUB_PROGRAM": name },
        });
        sapi.create("services", &service.as_object().cloned().unwrap_or_default()).await?;
        return Ok(());
    }
    let call = Call::new(Program::Sdcadm, step.update(&shar.file), DEADLINE);
    let output = commands.run(call).await?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    if output.status != 0 {
        bail!("sdcadm: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
