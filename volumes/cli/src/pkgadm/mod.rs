// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `sdc-pkgadm` (RFD 26 §New sdc-pkgadm command): the verbs of volume packages.

mod show; // what is printed of packages

mod args; // the grammar

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context as _;
use daemon::cli::names::{self, Kind, find_kind};
use daemon::cli::pages::fields;
use daemon::cli::{self, Screen, Usage};
use http::Method;
use sdc_clients::http::Call;
use sdc_clients::{Http, quoted};
use serde_json::{Value, json};

use crate::voladm::{Reach, Services};

use self::args::{AddArgs, Cli, NAME, Verb, VolumeVerb};

const PACKAGE: Kind = Kind { one: "package", name: "name" };

/// Runs the program; `args` begin with its name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    cli::main(NAME, args, async |cli: Cli| cli::finish(NAME, answer(&cli).await))
}

async fn answer(cli: &Cli) -> anyhow::Result<String> {
    match &cli.verb {
        Verb::Volume(verb) => volume(&client(cli)?, verb, Screen::of_stdout()).await,
        Verb::Generated(asked) => asked.text::<Cli>().context("the manual pages"),
    }
}

/// Returns the client of volapi, which sdc-voladm's configuration knows too.
fn client(cli: &Cli) -> anyhow::Result<Http> {
    let Cli { url, config, .. } = cli;
    let reach = Reach { url: url.clone(), config: config.clone(), ..Reach::default() };
    Services::find(&reach)?.http(0)
}

async fn volume(volapi: &Http, verb: &VolumeVerb, screen: Screen) -> anyhow::Result<String> {
    match verb {
        VolumeVerb::List { owner, list } => {
            Ok(show::table(&packages(volapi, owner.as_ref()).await?, &list.layout(), screen)?)
        }
        VolumeVerb::Get { package, list } => {
            let call = Call::get(&["volumepackages", &found(volapi, package).await?]);
            let package: Value = volapi.execute(call).await?.json("a package")?;
            let layout = list.layout();
            Ok(match layout.json && !layout.asks_for_table() {
                true => screen.harmless(&format!("{package:#}\n")),
                false => fields(&package, &layout, screen)?,
            })
        }
        VolumeVerb::Add(add) => {
            let call = Call::new(Method::POST, &["volumepackages"]).json(&wanted(add)?);
            let made: Value = volapi.execute(call).await?.json("a package")?;
            Ok(format!("{}\n", cli::pages::text(&made, "uuid")))
        }
        VolumeVerb::Activate { package } => set_active(volapi, package, true).await,
        VolumeVerb::Deactivate { package } => set_active(volapi, package, false).await,
    }
}

async fn packages(volapi: &Http, owner: Option<&String>) -> anyhow::Result<Vec<Value>> {
    let call = Call::get(&["volumepackages"]).query_opt("owner_uuid", owner);
    Ok(volapi.execute(call).await?.json("an array of packages")?)
}

/// Finds a package by its uuid, a beginning of it, or its name.
async fn found(volapi: &Http, typed: &str) -> anyhow::Result<String> {
    if let Ok(uuid) = names::uuid(typed) {
        return Ok(uuid);
    }
    let all = packages(volapi, None).await?;
    let known =
        all.iter().map(|it| (it["uuid"].as_str().unwrap_or(""), it["name"].as_str().unwrap_or("")));
    Ok(find_kind(PACKAGE, &known.collect::<Vec<_>>(), typed)?)
}

fn wanted(add: &AddArgs) -> Result<Value, Usage> {
    let size = show::mebibytes(&add.size);
    let size =
        size.ok_or_else(|| Usage(format!("{} is not a size: write 10G or 1T", quoted(&add.size))))?;
    let mut wanted = json!({
        "type": add.kind,
        "size": size,
        "compute_package_uuid": add.storage_instance_pkg,
        "description": add.description,
        "active": !add.inactive,
    });
    if let Some(name) = &add.name {
        wanted["name"] = name.as_str().into();
    }
    if !add.owner.is_empty() {
        wanted["owner_uuids"] = add.owner.clone().into();
    }
    Ok(wanted)
}

async fn set_active(volapi: &Http, package: &str, active: bool) -> anyhow::Result<String> {
    let call = Call::new(Method::POST, &["volumepackages", &found(volapi, package).await?]);
    volapi.execute(call.json(&json!({ "active": active }))).await?;
    Ok(String::new())
}
