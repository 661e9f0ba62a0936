// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed conform vmapi FILE`: replays exchanges recorded from the real VMAPI against the mock and reports
//! every answer that differs. The groups of migrations are left out: the mock keeps no migrations.

mod compare;
mod replay;
mod world;

use std::path::Path;

use super::tally::{Tally, only};
use super::transcript::Transcript;

/// The name of the recording in a directory of fixtures.
pub(super) const FILE: &str = "vmapi-transcripts.jsonl";

/// Compares with the recording at the path; `--only GROUP` replays one group.
pub(super) fn check(path: &Path, flags: &[String]) -> anyhow::Result<Tally> {
    let only = only(flags)?;
    let transcript = Transcript::read(path)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(replay::replay(&transcript, only))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // A19
    fn the_recorded_exchanges_are_answered_alike() {
        let dir = recordings::unpacked().unwrap();
        let tally = check(&dir.path().join(FILE), &[]).unwrap();
        assert_eq!((tally.failures, tally.passed), (Vec::new(), 299));
    }
}
