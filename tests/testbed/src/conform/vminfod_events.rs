// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed conform vminfod-events FILE`: recorded scenarios against the whole daemon. What the
//! deployed one sent, this one sends.

mod gate;
pub(crate) mod node;
mod scenario;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, anyhow, bail};
use serde_json::Value;

use super::deviations::Ledger;
use super::tally::{Tally, no_flags};

/// The name of the recording in a directory of fixtures.
pub(super) const FILE: &str = "vminfod-events.jsonl";
/// Scenarios at once: each mostly waits.
const AT_ONCE: usize = 8;

/// Compares with the recording at `path`, a file or a directory that has one.
pub(super) fn check(path: &Path, flags: &[String]) -> anyhow::Result<Tally> {
    no_flags(flags)?;
    let records = records(path, FILE)?;
    let (base, scenarios) = base_of(&records)?;
    let ledger = Ledger::default();
    let next = AtomicUsize::new(0);
    let one_after_another = || -> anyhow::Result<()> {
        // A daemon in one thread takes in together what is told at one moment, be it ever so slow.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
            runtime.block_on(scenario::replay(base, scenario, &ledger));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(one_after_another)).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| anyhow!("a thread of the runner panicked"))?
        })
    })?;
    Ok(ledger.tally())
}

/// The records of a recording, a line each.
pub(crate) fn records(path: &Path, file: &str) -> anyhow::Result<Vec<Value>> {
    let path = if path.is_dir() { path.join(file) } else { PathBuf::from(path) };
    let text = std::fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            serde_json::from_str(line).with_context(|| format!("{}:{}", path.display(), at + 1))
        })
        .collect()
}

/// The node every case starts from, and the cases.
pub(crate) fn base_of(records: &[Value]) -> anyhow::Result<(&Value, &[Value])> {
    match records {
        [base, cases @ ..] if base["record"] == "base" => Ok((base, cases)),
        _ => bail!("the first line is no record of a base node"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // V14
    #[test]
    fn the_recorded_scenarios_replay() {
        let dir = recordings::unpacked().unwrap();
        let tally = check(dir.path(), &[]).unwrap();
        assert_eq!((tally.failures, tally.passed), (Vec::new(), 144));
    }
}
