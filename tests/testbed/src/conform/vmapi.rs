// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed conform vmapi FILE`: replays exchanges recorded from the real VMAPI and reports every answer that
//! differs: against the mock, without the groups of migrations, which it does not keep; and all groups through
//! migration-service in front of the mock.

mod compare;
mod deviations;
mod front;
mod jobs;
mod peers;
mod purpose;
mod replay;
mod stream;
mod world;

use std::path::Path;

use super::tally::{Tally, only};
use super::transcript::Transcript;

/// The name of the recording in a directory of fixtures.
pub(super) const FILE: &str = "vmapi-transcripts.jsonl";

/// Compares with the recording at the path; `--only GROUP` replays one group.
pub(super) fn check(path: &Path, flags: &[String]) -> anyhow::Result<Tally> {
    let only = only(flags)?;
    let [mut all, fronted] = both(path, only)?;
    all.passed += fronted.passed;
    all.failures.extend(fronted.failures);
    all.notes.extend(fronted.notes);
    Ok(all)
}

/// What comes of the mock itself, and of migration-service in front of it.
fn both(path: &Path, only: Option<&str>) -> anyhow::Result<[Tally; 2]> {
    let recorded = replay::Recorded {
        transcript: Transcript::read(path)?,
        calls: peers::read(path)?,
        jobs: jobs::Jobs::read(path)?,
        rows: deviations::read()?,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(replay::replay(&recorded, only))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // A19
    fn the_recorded_exchanges_are_answered_alike() {
        let dir = recordings::unpacked().unwrap();
        let [direct, fronted] = both(&dir.path().join(FILE), None).unwrap();
        assert_eq!((direct.failures, direct.passed), (Vec::new(), 320));
        assert_eq!((fronted.failures, fronted.passed), (Vec::new(), 611));
    }

    #[test]
    fn a_group_with_an_unknown_step_is_left_out_and_said() {
        let dir = recordings::unpacked().unwrap();
        let file = dir.path().join(FILE);
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("\"do\":\"moray\"", "\"do\":\"else\"")).unwrap();
        for tally in both(&file, Some("storage-down")).unwrap() {
            assert_eq!(tally.failures, Vec::<String>::new());
            let left = "left out: the rest of storage-down: nobody knows";
            assert!(tally.notes.iter().any(|note| note.starts_with(left)), "{:?}", tally.notes);
        }
    }
}
