// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `sdc-voladm`, which looks after the storage VMs of volumes, and `sdc-volapi`, which sends one request. What is
//! printed is made by pure modules from records.

// Blank lines keep the modules in layer order.

pub mod curl;

mod check;

mod judge;

mod history;

mod act;

mod job;

mod list;

mod zones;

mod services;

mod shell;

mod args;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context as _;
use daemon::cli::{self, Screen};
use daemon::exit;

use self::act::{Deed, act};
use self::args::{Cli, NAME, Verb};

pub(crate) use self::args::Reach;
pub(crate) use self::services::Services;

/// Runs `sdc-voladm`; `args` begin with its name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    cli::main(NAME, args, async |cli: Cli| {
        let done = answer(cli.verb, &cli.reach, Screen::of_stdout()).await;
        done.unwrap_or_else(|error| cli::finish(NAME, Err(error)))
    })
}

async fn answer(verb: Verb, reach: &Reach, screen: Screen) -> anyhow::Result<ExitCode> {
    let services = || Services::find(reach);
    Ok(match verb {
        Verb::ListVolumeZones { owner, long, list } => {
            let (services, owner) = (services()?, owner.as_deref());
            let text = list::list(&services, owner, long, &list.layout(), screen).await?;
            cli::print(NAME, &text)
        }
        Verb::RestartVolumeZone { chosen } => act(&services()?, &chosen, &Deed::Restart).await?,
        Verb::UpdateVolumeZone { chosen, image } => {
            act(&services()?, &chosen, &Deed::Update(image)).await?
        }
        Verb::DeleteVolumeZone { chosen } => act(&services()?, &chosen, &Deed::Delete).await?,
        Verb::Check { list } => {
            let (text, has_found) = check::check(&services()?, &list.layout(), screen).await?;
            let printed = cli::print(NAME, &text);
            if has_found { ExitCode::from(exit::FAILED) } else { printed }
        }
        Verb::History { volume, since, list } => {
            let (volume, since) = (volume.as_deref(), since.as_deref());
            let text = history::list(&services()?, volume, since, &list.layout(), screen).await?;
            cli::print(NAME, &text)
        }
        Verb::Generated(asked) => {
            cli::print(NAME, &asked.text::<Cli>().context("the manual pages")?)
        }
    })
}
