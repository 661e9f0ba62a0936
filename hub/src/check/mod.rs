// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `hub check`: looks, read-only, on a real node or headnode whether what the product believes of it is true.
//!
//! The beliefs are those of the ledger, `docs/contract/beliefs.md`, which is compiled in: what is printed is the
//! ledger's own sentence. A check returns whether its belief holds, is false, or cannot be told here, with what it
//! counted. No finding has a name of a VM, an address or a metadata value in it, so that a report can be sent to
//! others. The checks run one after another, but for the two that wait for events.

mod report; // what is printed, and what is sent

mod front; // who asks VMAPI past migration-service

mod data_centre; // NAPI, VMAPI, CNAPI, IMGAPI, PAPI

mod answers; // who answers on vminfod's port

mod certificate; // how migration-agent's certificate stands

mod agents; // the state files of our agents

mod services; // SMF

mod whose; // whose agents run, and whether the next boot starts ours

mod streams; // the helpers that run: sysevent, fswatcher

mod datasets; // zfs, zpool

mod zones; // zoneadm, the index, zones' files, kstats, sysinfo

mod programs; // what is installed, and how it is run

mod finding; // what a check found

mod ledger; // the beliefs

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use daemon::cli::{self, ListArgs, Progress, Screen};
use daemon::config::parse_span;
use serde_json::Value;

use crate::place::{Place, Service, installed};
use finding::{Finding, Verdict};
use programs::Programs;

const EXAMPLES: &str = "\
Examples:
  hub check                             check this node
  hub check --watch 10m                 wait longer for events
  hub check --report check.json
  hub check -p -o number,state

Nothing on the node or in the data centre is changed. What it checks are the beliefs of the ledger
(docs/contract/beliefs.md); the number of each stands in front of it.

Exit status: 0 no belief is false, 1 a belief is false, 2 wrong usage or configuration.";

/// Check, read-only, whether what the product believes of this node is true.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A configuration of a program of the node; may be given several times (default: those that are installed).
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// How long to wait for events.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_span)]
    watch: Duration,
    /// Write a report to this new file, for its owner alone: no name of a VM, no address and no metadata is in it.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    list: ListArgs,
}

/// Checks this node and prints what was found; a belief that is false fails.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let files = if args.config.is_empty() { installed() } else { args.config };
    let place = Place::read(&files)?;
    let findings = {
        let _shown = Progress::begin("checking the node");
        all(&place, args.watch).await
    };
    if let Some(path) = &args.report {
        let text = format!("{:#}\n", report::report(&findings, &platform(&place)));
        report::write(path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let text = report::table(&findings, &args.list.layout(), Screen::of_stdout())?;
    let printed = cli::print(crate::name::NAME, &text);
    let is_false = findings.iter().any(|finding| finding.verdict == Verdict::Fails);
    Ok(if is_false { ExitCode::FAILURE } else { printed })
}

/// Checks everything; waits for events as long as `watch`.
async fn all(place: &Place, watch: Duration) -> Vec<Finding> {
    let programs = Programs::of(place);
    let mut findings = programs::check(place);
    let zones = zones::check(place, &programs).await;
    findings.extend(zones.findings);
    findings.extend(datasets::check(&programs).await);
    findings.extend(services::check(&programs).await);
    findings.extend(whose::check(place, &programs).await);
    let cn = zones.cn_uuid.as_deref();
    findings.extend(answers::check(place, cn).await);
    findings.push(agents::check(place, cn));
    findings.push(certificate::check(place).await);
    findings.extend(data_centre::check(place, cn).await);
    findings.push(front::check(place, &programs, data_centre::client(place, Service::Cnapi)).await);
    let (events, files) =
        tokio::join!(streams::events(&programs, watch), streams::files(place, &programs));
    findings.extend(events);
    findings.push(files);
    findings
}

/// Returns the platform's version: `Live Image` of the sysinfo file.
fn platform(place: &Place) -> String {
    let sysinfo = zones::sysinfo(place);
    let live = sysinfo.as_ref().and_then(|value| value.get("Live Image")).and_then(Value::as_str);
    live.unwrap_or("unknown").to_owned()
}
