// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `hub setup agents`: our agents on the nodes. `hub setup volapi|migration|feed`: the service in SAPI with a delegated
//! dataset and a zone, and the first move of a running zone's data to it, before the zone is reprovisioned for the
//! first time. Each step is said before it is done, with the way back; run again, it goes on where it was.
//!
//! Modules, highest first; each uses only modules listed below it.

mod agents; // our agents on the nodes, by sdcadm

mod zone; // a zone of this node

mod plan; // what is left to do

mod copy; // a folder, copied and compared

mod site; // which data centre this is, and what is asked before anything is done

mod sapi; // what is read and written of SAPI

mod piece; // the services

mod refusal; // why nothing more is done

#[cfg(test)]
mod tests;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use daemon::command::{Commands, Paths, Spawned};
use sdc_clients::papi::{PackageQuery, Papi};
use serde_json::json;

use piece::Piece;
use plan::{Instance, Service, Step, steps};
use refusal::Refusal;
use sapi::{Object, Sapi, text};
use site::{Site, agreed, http};
use zone::Node;

/// What marks an instance of ours that is in use, and one whose data is being moved.
const IN_USE: &str = "HUB_DATA_IN_USE";
const MOVING: &str = "HUB_DATA_MOVING";
/// The value of [`MOVING`] where the move protects the zone itself.
const PROTECTS: &str = "protects the zone";

/// Set up our agents, or a service of ours in a zone whose data outlives its updates: on the headnode.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hub setup agents agents-hub-….sh --server UUID    our agents on one node
  hub setup volapi --dry-run                        what would be done
  hub setup migration                               move the data of the running zone to /data
  hub setup feed --image UUID                       a new service, with a zone from this image

A service that SAPI has and that is not ours is left alone. Afterwards an update of the zone keeps its data:
sapiadm reprovision INSTANCE IMAGE.

Exit status: 0 everything is set up, 1 something is left, 2 wrong usage or configuration.")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Our agents on the nodes.
    Agents(agents::Args),
    /// volapi
    Volapi(ZoneArgs),
    /// migration-service
    Migration(ZoneArgs),
    /// A server of the feed.
    Feed(ZoneArgs),
}

#[derive(Clone, Debug, Default, clap::Args)]
struct ZoneArgs {
    /// The image of a new zone, which IMGAPI has.
    #[arg(long, value_name = "UUID")]
    image: Option<String>,
    /// SAPI (default: as /usbkey/config says).
    #[arg(long, value_name = "URL")]
    sapi: Option<String>,
    /// PAPI, for the size of a new zone (default: as /usbkey/config says).
    #[arg(long, value_name = "URL")]
    papi: Option<String>,
    /// Say what would be done, and do nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
}

/// Runs it.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (commands, root) = (Spawned::new(Paths::default()), Path::new("/"));
    match args.what {
        What::Agents(args) => agents::setup(&args, &commands, root).await,
        What::Volapi(args) => setup(Piece::Volapi, &args, &commands, root).await,
        What::Migration(args) => setup(Piece::Migration, &args, &commands, root).await,
        What::Feed(args) => setup(Piece::Feed, &args, &commands, root).await,
    }
}

async fn setup(
    piece: Piece,
    args: &ZoneArgs,
    commands: &dyn Commands,
    root: &Path,
) -> anyhow::Result<ExitCode> {
    let site = Site::read(root);
    let sapi = Sapi::new(http(&site.url(args.sapi.as_deref(), "sapi")?)?);
    let node = Node { commands, root: root.to_owned() };
    let setup = Setup { piece, image: args.image.as_deref(), sapi, node };
    let seen = setup.look().await?;
    let left = steps(seen.as_ref())?;
    let goes_on =
        agreed(left.iter().map(|step| (step.says(piece), step.back())), args.yes || args.dry_run)?;
    if args.dry_run {
        return Ok(if left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    if !goes_on {
        return Ok(ExitCode::FAILURE);
    }
    let papi = site.url(args.papi.as_deref(), "papi").unwrap_or_else(|_| "http://papi".to_owned());
    let papi = Papi::new(http(&papi)?);
    for step in &left {
        eprintln!("{}", step.says(piece));
        let done = setup.perform(step, &site, &papi).await;
        done.with_context(|| format!("did not {}; run this again to go on", step.says(piece)))?;
    }
    setup.told().await
}

struct Setup<'a> {
    piece: Piece,
    image: Option<&'a str>,
    sapi: Sapi,
    node: Node<'a>,
}

impl Setup<'_> {
    /// Returns the service as it is; refuses one that is not ours.
    async fn look(&self) -> anyhow::Result<Option<Service>> {
        let name = self.piece.service();
        let Some(found) = self.sapi.service(name).await? else { return Ok(None) };
        if text(&found, "metadata", "HUB_PROGRAM") != self.piece.program() {
            return Err(Refusal::NotOurs(name).into());
        }
        let uuid = text(&found, "", "uuid").to_owned();
        let mut instances = Vec::new();
        for instance in self.sapi.instances(&uuid).await? {
            let uuid = text(&instance, "", "uuid").to_owned();
            let zone = self.node.look(self.piece, &uuid).await?;
            let has = |key: &str| text(&instance, "metadata", key);
            let moving = Some(has(MOVING)).filter(|it| !it.is_empty()).map(|it| it == PROTECTS);
            instances.push(Instance { in_use: !has(IN_USE).is_empty(), moving, uuid, zone });
        }
        let delegates =
            found.get("params").and_then(|it| it.get("delegate_dataset")) == Some(&json!(true));
        Ok(Some(Service { uuid, delegates, instances }))
    }

    async fn perform(&self, step: &Step, site: &Site, papi: &Papi) -> anyhow::Result<()> {
        let (sapi, node) = (&self.sapi, &self.node);
        let set = async |zone: &str, key: &str, value: &str| {
            sapi.set(["instances", zone], "metadata", key, json!(value)).await
        };
        match step {
            Step::CreateService => self.create_service(site, papi).await?,
            Step::Delegate { service } => {
                sapi.set(["services", service], "params", "delegate_dataset", json!(true)).await?;
            }
            Step::CreateInstance => self.create_instance().await?,
            Step::Begin { zone, protects } => {
                set(zone, MOVING, if *protects { PROTECTS } else { "protected before" }).await?;
            }
            Step::Protect { zone } => node.protect(zone, true).await?,
            Step::Stop { zone } => node.stop(zone).await?,
            Step::CreateDataset { zone } => node.create_dataset(zone).await?,
            Step::Copy { zone, folder } => node.copy(zone, folder).await?,
            Step::Link { zone, folder } => node.link(zone, folder)?,
            Step::Hand { zone } => node.hand(zone).await?,
            Step::Start { zone } => node.start(zone).await?,
            Step::Mark { zone } => set(zone, IN_USE, &daemon::wall::now().to_string()).await?,
            Step::Unprotect { zone } => node.protect(zone, false).await?,
            Step::End { zone } => sapi.remove(["instances", zone], MOVING).await?,
        }
        Ok(())
    }

    async fn create_service(&self, site: &Site, papi: &Papi) -> anyhow::Result<()> {
        let name = self.piece.service();
        let none = Refusal::NoImage { service: name, piece: self.piece.word() };
        let image = self.image.ok_or(none)?;
        let mut service = self.piece.definition();
        let package = text(&service, "params", "package_name").to_owned();
        let asked = PackageQuery {
            name: Some(package.clone()),
            active: Some(true),
            ..PackageQuery::default()
        };
        let found = papi.list_packages(&asked).await?.0.into_iter().next();
        let billing = found.ok_or(Refusal::NoPackage(package))?.uuid;
        let vmapi = self.sapi.service("vmapi").await?.unwrap_or_default();
        let script = text(&vmapi, "metadata", "user-script");
        if script.is_empty() {
            return Err(Refusal::NoUserScript.into());
        }
        let application = self.sapi.application().await?.context("SAPI has no application sdc")?;
        let domain = site.domain(name).unwrap_or_else(|| name.to_owned());
        service.insert("application_uuid".to_owned(), json!(text(&application, "", "uuid")));
        put(&mut service, "params", [("image_uuid", image), ("billing_id", &billing)]);
        put(&mut service, "metadata", [("SERVICE_DOMAIN", &domain), ("user-script", script)]);
        self.sapi.create("services", &service).await?;
        Ok(())
    }

    async fn create_instance(&self) -> anyhow::Result<()> {
        let name = self.piece.service();
        let service = self.sapi.service(name).await?.context("SAPI does not show the service")?;
        // Like sdcadm's own services it is placed here: the headnode takes no other VMs.
        let params = json!({ "alias": format!("{name}0"), "server_uuid": self.node.uuid()? });
        let body =
            json!({ "service_uuid": text(&service, "", "uuid"), "params": params, "metadata": {} });
        let body: Object = body.as_object().cloned().unwrap_or_default();
        self.sapi.create("instances", &body).await?;
        Ok(())
    }

    /// Looks again, and says what may be done now.
    async fn told(&self) -> anyhow::Result<ExitCode> {
        let service = self.look().await?;
        let left = steps(service.as_ref())?;
        let instances = service.iter().flat_map(|it| &it.instances);
        for instance in instances {
            let uuid = &instance.uuid;
            match &instance.zone {
                None => println!("{uuid} is on another node: run this there too"),
                Some(zone) if zone.is_protected => {
                    println!(
                        "{uuid} is not reprovisioned while its indestructible_zoneroot is set"
                    );
                }
                Some(zone) if zone.delegated.contains(&zone.data()) => {
                    println!("{uuid} may be reprovisioned: sapiadm reprovision {uuid} IMAGE");
                    if !instance.in_use {
                        println!("{uuid} has no records yet: run this again once it has");
                    }
                }
                Some(_) => {}
            }
        }
        Ok(if left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Sets texts in a group of an object.
fn put<const N: usize>(object: &mut Object, group: &str, pairs: [(&str, &str); N]) {
    let group = object.entry(group).or_insert_with(|| json!({}));
    if let Some(group) = group.as_object_mut() {
        group.extend(pairs.map(|(key, value)| (key.to_owned(), json!(value))));
    }
}
