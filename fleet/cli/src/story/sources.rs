// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Asks migration-service and the nodes. Each of them may be away: what it says is then why.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::bail;
use daemon::cli::services::{Place, Services};
use daemon::cli::span;
use daemon::command::{Call, Commands, Program};
use futures_util::future::{join, join_all};
use jiff::Timestamp;
use sdc_clients::http::{Call as Request, LIST_TIMEOUT};
use sdc_clients::migrations::{HistoryQuery, Migrations};
use sdc_clients::{Error, Http};
use serde_json::Value;
use tokio::time::timeout;
use uuid::Uuid;

use super::read::{self, Told};
use crate::names::Names;

const PLACES: [Place; 1] = [("migration-service", "--url", "VMAPI_URL", "vmapi_url")];
/// The configuration of sdc-migrate, which knows where the service is, and its other keys.
const INSTALLED: &str = "/opt/smartdc/agents/etc/sdc-migrate.config.json";
const OTHERS: [&str; 6] =
    ["cnapi_url", "poll", "control_socket", "state_dir", "trust_dir", "trust_url"];
/// A service that takes longer does not answer: a story is not waited for.
const PATIENCE: Duration = Duration::from_secs(20);
/// What a node is given: seconds to be found, and to answer.
const FOUND: u64 = 4;
const ANSWERED: u64 = 20;

/// What sources tell, and why others tell nothing.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) told: Vec<Vec<Told>>,
    /// A line each.
    pub(crate) silent: Vec<String>,
    /// Nodes on which the VM is or was.
    pub(crate) cns: BTreeSet<String>,
}

impl Answers {
    /// Adds those of other sources.
    pub(crate) fn and(&mut self, those: Answers) {
        self.told.extend(those.told);
        self.silent.extend(those.silent);
        self.cns.extend(those.cns);
    }
}

/// Asks migration-service for the VM's migrations, and VMAPI through it for its jobs.
pub(crate) async fn migrations(
    url: Option<String>,
    vm: &str,
    since: Option<Timestamp>,
    names: &Names,
) -> Answers {
    let mut answers = Answers::default();
    let mut silent = |source: &str, why: String| {
        answers.silent.push(format!("{source} does not answer: {why}"));
    };
    let http = match client(url) {
        Ok(http) => http,
        Err(error) => {
            silent("migration-service", format!("{error:#}"));
            return answers;
        }
    };
    let service = Migrations::new(http.clone());
    let query = HistoryQuery {
        vm_uuid: Some(vm.to_owned()),
        since: since.map(|at| format!("{at:.3}")),
        ..HistoryQuery::default()
    };
    let asked = async {
        let ended = service.history(&query).await?;
        match service.get(vm).await {
            Err(error) if error.is_not_found_resource() => Ok((ended, None)),
            Err(error) => Err(error),
            Ok(open) => Ok((ended, Some(open))),
        }
    };
    let jobs = async {
        let call = Request::get(&["vms", vm, "jobs"]).timeout(LIST_TIMEOUT);
        http.execute(call).await?.json::<Vec<Value>>("an array of jobs")
    };
    let (asked, jobs) = join(within(asked), within(jobs)).await;
    match asked {
        Ok((ended, open)) => {
            answers.told.push(read::of_migrations(&ended, open.as_ref(), names));
            let nodes =
                open.into_iter().flat_map(|it| [it.source_server_uuid, it.target_server_uuid]);
            let ended = ended.into_iter().flat_map(|it| it.cn_uuids);
            answers.cns = nodes.flatten().chain(ended).collect();
        }
        Err(why) => silent("migration-service", why),
    }
    match jobs {
        Ok(jobs) => answers.told.push(read::of_jobs(&jobs)),
        Err(why) => silent("VMAPI (its jobs)", why),
    }
    answers
}

/// Waits for an answer, or returns why there is none.
pub(super) async fn within<T>(ask: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
    match timeout(PATIENCE, ask).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer in {}", span(PATIENCE))),
    }
}

/// A client of the service where the other tools find it.
fn client(url: Option<String>) -> anyhow::Result<Http> {
    let others = |file: &mut daemon::Fields| OTHERS.map(|key| file.get(key).is_some());
    let (found, _) = Services::find("sdc-migrate", INSTALLED, None, &PLACES, &[&url], others)?;
    Ok(found.client(found.url(0)?)?)
}

/// Asks the programs of each node what they did with the VM.
pub(crate) async fn nodes(
    commands: &dyn Commands,
    cns: &BTreeSet<String>,
    vm: Uuid,
    since: Option<Timestamp>,
    names: &Names,
) -> Answers {
    // What the feed and the service name is part of a command of root's: of a node no more than its uuid is.
    let asked = cns.iter().filter_map(|cn| Uuid::try_parse(cn).ok());
    let asked = asked.map(async |cn| (cn.to_string(), node(commands, cn, vm, since).await));
    let mut answers = Answers::default();
    for (cn, answer) in join_all(asked).await {
        let name = names.node(&cn);
        let (printed, complaint) = match answer {
            Ok(answer) => answer,
            Err(why) => {
                answers.silent.push(format!("{name} does not answer: {why}"));
                continue;
            }
        };
        let (told, silent) = read::of_node(&cn, &vm.to_string(), &printed);
        answers.told.extend(told);
        for program in silent {
            let said = complaint.lines().find(|line| line.contains(program));
            let why = said.unwrap_or("it printed nothing that can be read");
            answers.silent.push(format!("{program} on {name} does not answer: {why}"));
        }
    }
    answers
}

/// Returns what the programs of a node print, and what they complain of.
async fn node(
    commands: &dyn Commands,
    cn: Uuid,
    vm: Uuid,
    since: Option<Timestamp>,
) -> anyhow::Result<(String, String)> {
    let since = since.map(|at| format!(" --since {at:.3}")).unwrap_or_default();
    let script = format!(
        "echo '== net-agent'; net-agent history -j --vm {vm}{since}\n\
         echo '== vm-agent'; vm-agent status -j && vm-agent why {vm} -j\n\
         if command -v kvmd >/dev/null; then echo '== kvmd'; kvmd verdicts -j; fi"
    );
    let (found, answered, cn) = (FOUND.to_string(), ANSWERED.to_string(), cn.to_string());
    let args = ["-j", "-t", &found, "-T", &answered, "-n", &cn, &script].map(str::to_owned);
    let deadline = Duration::from_secs(FOUND + ANSWERED + 6);
    let done = commands.run(Call::new(Program::SdcOneachnode, args.into(), deadline)).await?;
    // Where it does not find the node, it prints a list without it, and why beside it.
    let answer: Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
    if let Some(error) = answer[0]["error"]["message"].as_str() {
        bail!("{error}");
    }
    let text = |key: &str| answer[0]["result"][key].as_str().map(str::to_owned);
    let Some(printed) = text("stdout") else {
        bail!("{}: {}", Program::SdcOneachnode, done.complaint());
    };
    Ok((printed, text("stderr").unwrap_or_default()))
}
