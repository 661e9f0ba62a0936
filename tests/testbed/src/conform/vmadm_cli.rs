// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed conform vmadm-cli FILE`: recorded runs of the shipped `vmadm` and `vminfo` against the
//! same code that our command line runs, byte by byte: stdout, stderr, exit status.
//!
//! A run on a recorded node is done twice: over HTTP from a whole daemon on that node, and, where
//! the command can do without one, from the node's files directly. Runs whose objects, status or
//! events are in the recording itself are served from there.

mod recording;
mod served;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use vminfod::cli::stream::{self, StreamEnd};
use vminfod::cli::supply::{FromDaemon, Supplier, SupplyError};
use vminfod::cli::vmadm::events::Printer;
use vminfod::cli::vmadm::{self, Failure, Plan, Printed};
use vminfod::cli::vminfo;

use super::tally::{Tally, no_flags};
use recording::{Case, Vms};
use served::{Direct, Node, Served};

/// The name of the recording in a directory of fixtures.
pub(super) const FILE: &str = "vmadm-cli.jsonl";
/// As which the recorded runs were started.
const PROGRAM: &str = "/usr/sbin/vmadm";
/// A run has printed everything by then.
const LIMIT: Duration = Duration::from_secs(20);
/// How long a run that has printed what is expected may go on and print more.
const MORE: Duration = Duration::from_millis(150);

/// Compares with the recording at `path`, a file or a directory that has one.
pub(super) fn check(path: &Path, flags: &[String]) -> anyhow::Result<Tally> {
    no_flags(flags)?;
    let file = if path.is_dir() { path.join(FILE) } else { path.to_path_buf() };
    let cases = recording::read(&file)?;
    let fixtures = file.parent().unwrap_or(Path::new(".")).to_path_buf();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut tally = Tally::default();
    runtime.block_on(async {
        let mut nodes = Nodes { fixtures, daemons: HashMap::new() };
        for (n, case) in cases.iter().enumerate() {
            let place = format!("{} {}", n + 1, case.args.join(" "));
            match nodes.served(case).await {
                Ok(served) => {
                    let printed = printed(case, Some(&served.url()), None).await;
                    case.judge(printed).enter(&place, &mut tally);
                }
                Err(error) => tally.case(&place, &[format!("{error:#}")]),
            }
            if !case.can_do_without_a_daemon() {
                continue;
            }
            if let Vms::Node(name) = &case.vms {
                let place = format!("{place} (no daemon)");
                match Node::copy(&nodes.fixtures.join(name)) {
                    Ok(node) => {
                        let supplier = Direct::new(&node);
                        let printed = printed(case, None, Some(&supplier)).await;
                        case.judge(printed).enter(&place, &mut tally);
                    }
                    Err(error) => tally.case(&place, &[format!("{error:#}")]),
                }
            }
        }
    });
    Ok(tally)
}

/// Daemons on recorded nodes, kept for as long as the cases run.
struct Nodes {
    fixtures: PathBuf,
    daemons: HashMap<String, std::sync::Arc<Served>>,
}

impl Nodes {
    async fn served(&mut self, case: &Case) -> anyhow::Result<std::sync::Arc<Served>> {
        let Vms::Node(name) = &case.vms else {
            return Ok(Served::recorded(case, &self.fixtures).await?.into());
        };
        if case.needs_the_recording() {
            return Ok(Served::recorded(case, &self.fixtures).await?.into());
        }
        if let Some(daemon) = self.daemons.get(name) {
            return Ok(daemon.clone());
        }
        let node = Node::copy(&self.fixtures.join(name)).with_context(|| name.clone())?;
        let daemon = std::sync::Arc::new(Served::daemon(node).await?);
        self.daemons.insert(name.clone(), daemon.clone());
        Ok(daemon)
    }
}

/// Runs one case against the daemon at `url`, or with what `direct` supplies.
async fn printed(case: &Case, url: Option<&str>, direct: Option<&dyn Supplier>) -> (Printed, bool) {
    let daemon = FromDaemon::new(url.unwrap_or("http://127.0.0.1:1"), "testbed");
    let daemon = match daemon {
        Ok(daemon) => daemon,
        Err(error) => return (Printed::of(Err(Failure::from(error)), PROGRAM), true),
    };
    let args = case.args.get(1..).unwrap_or_default();
    if case.args.first().is_some_and(|program| program == "vminfo") {
        let plan = match vminfo::plan(args) {
            Ok(plan) => plan,
            Err(printed) => return (printed, true),
        };
        return match &plan {
            vminfo::Plan::Events(printer) => followed(&daemon, printer, &case.stdout).await,
            plan => (of(vminfo::run(plan, &daemon).await), true),
        };
    }
    let plan = match vmadm::plan(args) {
        Ok(plan) => plan,
        Err(failure) => return (Printed::of(Err(failure), PROGRAM), true),
    };
    if let Plan::Events(printer) = &plan {
        return followed(&daemon, printer, &case.stdout).await;
    }
    let supplier = direct.unwrap_or(&daemon);
    (Printed::of(vmadm::run(plan, supplier).await, PROGRAM), true)
}

fn of(result: Result<String, SupplyError>) -> Printed {
    Printed::of(result.map_err(Failure::from), PROGRAM)
}

/// Follows events until as much is printed as is expected, and a little longer. Says whether the
/// run ended by itself.
async fn followed(daemon: &FromDaemon, printer: &Printer, expected: &str) -> (Printed, bool) {
    let mut stdout = String::new();
    let (seen, mut told) = tokio::sync::watch::channel(0);
    let mut show = |line: &[u8]| {
        stdout.push_str(&printer.line(line)?);
        seen.send_replace(stdout.len());
        Ok(())
    };
    let following = stream::follow(daemon, stream::events(), &mut show);
    let enough = async {
        let all = told.wait_for(|length| *length >= expected.len());
        // What comes is a lock on the length, which more lines change.
        drop(tokio::time::timeout(LIMIT, all).await);
        tokio::time::sleep(MORE).await;
    };
    // Dropping the stream is what a signal does to the program.
    let end = tokio::select! {
        Err(end) = following => Some(end),
        () = enough => None,
    };
    let (stderr, code) = match &end {
        Some(StreamEnd::Write(_)) | None => (String::new(), 0),
        Some(end) => (format!("{end}\n"), 1),
    };
    (Printed { stdout, stderr, code }, end.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_runs() {
        let dir = recordings::unpacked().unwrap();
        let tally = check(dir.path(), &[]).unwrap();
        assert_eq!(tally.failures, Vec::<String>::new());
        assert!(tally.passed >= 47 + 26 - 9, "{}", tally.passed);
        assert_eq!(tally.notes.len(), 9, "{:?}", tally.notes);
    }
}
