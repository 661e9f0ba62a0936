// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `hub node`: the hub's vminfod in the place of the platform's, on this node.
//!
//! `/usr` is read-only, so nothing is written there: the program and its start method are mounted over the platform's
//! (lofs, a file on a file), and a boot removes the mounts. `try` lays them until the next boot and sees whether all
//! works; only where it did, `enable` has a service lay them at each boot of this platform image. Each verb looks at
//! what is there before it does anything, so one that was killed is run again.

mod site; // the node: its files, its mounts, its vminfod

mod next; // which vminfod the next boot starts

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use daemon::cli::{self, Progress};

use crate::name::NAME;
use site::Site;

const EXAMPLES: &str = "\
Examples:
  hub node try        until the next boot; on any failure the platform's vminfod runs again
  hub node enable     at each boot of this platform image
  hub node status
  hub node disable    back to the platform's, now and at each boot

Exit status: 0 done, 1 not done, 2 wrong usage.";

/// Put the hub's vminfod in the place of the platform's, and back.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A file with `root`, `kit` and `commands`, for a node that is elsewhere.
    #[arg(long, value_name = "FILE", hide = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Verb {
    /// Run the hub's vminfod until the next boot, and see whether it shows every VM.
    Try,
    /// Run it at each boot of this platform image, on which `try` saw it work.
    Enable,
    /// Run the platform's vminfod again, now and at each boot.
    Disable,
    /// The same, and forget what was tried.
    Remove,
    /// Show which vminfod runs, and which the next boot starts.
    Status,
}

/// Runs a verb.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let site = Site::of(args.config.as_deref())?;
    let said = match args.verb {
        Verb::Try => tried(&site).await?,
        Verb::Enable => enabled(&site).await?,
        Verb::Disable => disabled(&site).await?,
        Verb::Remove => removed(&site).await?,
        Verb::Status => status(&site).await?,
    };
    Ok(cli::print(NAME, &said))
}

async fn tried(site: &Site) -> anyhow::Result<String> {
    site.check_kit()?;
    site.configure()?;
    let platform = site.platform().await?;
    let works = {
        let shown = Progress::begin("laying the mounts");
        works(site, &shown).await
    };
    if let Err(why) = works {
        let back = site.take_off().await;
        let back = match back {
            Ok(_) => site.restart().await,
            Err(error) => Err(error),
        };
        let after = match back {
            Ok(()) => "the platform's vminfod runs again".to_owned(),
            Err(error) => format!(
                "and the platform's vminfod does not run: {error:#}; svcs -xv vminfod says why"
            ),
        };
        return Err(why.context(format!("the hub's vminfod does not work on {platform}; {after}")));
    }
    site.remember(&platform)?;
    Ok(format!(
        "the hub's vminfod runs, and shows every VM, until the next boot; \
         hub node enable makes it run at each boot of {platform}\n"
    ))
}

async fn works(site: &Site, shown: &Progress) -> anyhow::Result<()> {
    site.lay().await?;
    shown.say("restarting vminfod");
    site.restart().await?;
    shown.say("asking it for every VM");
    site.answers().await?;
    site.shows_every_vm().await
}

async fn enabled(site: &Site) -> anyhow::Result<String> {
    site.check_kit()?;
    let platform = site.platform().await?;
    if let Some(why) = site.next(&platform, true)? {
        bail!("a boot would start the platform's vminfod: {why}");
    }
    site.write_manifest()?;
    Ok(format!("from the next boot on, each boot of {platform} starts the hub's vminfod\n"))
}

async fn disabled(site: &Site) -> anyhow::Result<String> {
    site.remove_manifest().await?;
    // One that was killed may have taken the mounts off, or stopped vminfod, and not started it again.
    let laid = site.take_off().await?;
    if laid || site.answers().await.is_ok() || !site.is_online().await? {
        let why = "the platform's vminfod does not run; svcs -xv vminfod says why";
        site.restart().await.context(why)?;
    }
    Ok("the platform's vminfod runs, now and at each boot\n".to_owned())
}

async fn removed(site: &Site) -> anyhow::Result<String> {
    let said = disabled(site).await?;
    site.forget()?;
    Ok(format!(
        "{said}nothing of it is left but its folder and its configuration: {}\n",
        site.way_to_remove()
    ))
}

async fn status(site: &Site) -> anyhow::Result<String> {
    let platform = site.platform().await?;
    let now = match site.is_laid().await? {
        false => "the platform's vminfod",
        true if site.answers().await.is_ok() => "the hub's vminfod",
        true => {
            "the hub's vminfod, which does not answer: hub node try starts it again, hub node disable goes back"
        }
    };
    let next = match site.next(&platform, site.has_manifest())? {
        None => "the hub's vminfod".to_owned(),
        Some(why) => format!("the platform's vminfod: {why}"),
    };
    let rows = [
        ("kit", site.kit().to_owned()),
        ("configuration", site::CONFIG.to_owned()),
        ("platform", platform),
        ("now", now.to_owned()),
        ("next boot", next),
    ];
    Ok(rows.iter().map(|(key, value)| format!("{key:<14} {value}\n")).collect())
}
