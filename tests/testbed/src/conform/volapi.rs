// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed conform volapi FILE`: replays exchanges recorded from the real volapi against ours, on a socket, and
//! reports every answer that differs. The services around it are stand-ins that do what the recording says
//! of them; what volapi asked of them is compared with what the real one asked.

mod calls; // what the service asked, against what was recorded
mod compare; // when two answers are the same
mod purpose; // where ours answers otherwise on purpose, as rules
mod replay; // the way of a replay
mod rows; // the same for one exchange each
mod world; // what was done to the surroundings

use std::path::Path;

use super::tally::{Tally, only};
use super::transcript::Transcript;

/// The name of the recording in a directory of fixtures.
pub(super) const FILE: &str = "volapi-transcripts.jsonl";
/// What the real service asked of others, beside it.
const CALLS: &str = "volapi-peer-calls.jsonl";

/// Compares with the recording at the path; `--only GROUP` replays one group.
pub(super) fn check(path: &Path, flags: &[String]) -> anyhow::Result<Tally> {
    let only = only(flags)?;
    let transcript = Transcript::read(path)?;
    let calls = calls::read(&path.with_file_name(CALLS))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(replay::replay(&transcript, calls, only))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // V40
    fn the_recorded_exchanges_are_answered_alike() {
        let dir = recordings::unpacked().unwrap();
        let tally = check(&dir.path().join(FILE), &[]).unwrap();
        assert_eq!((tally.failures, tally.passed), (Vec::new(), 642));
    }

    #[test]
    fn a_group_with_an_unknown_step_is_left_out_and_said() {
        let dir = recordings::unpacked().unwrap();
        let file = dir.path().join(FILE);
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("\"do\":\"moray\"", "\"do\":\"else\"")).unwrap();
        let tally = check(&file, &["--only".to_owned(), "storage-down".to_owned()]).unwrap();
        assert_eq!(tally.failures, Vec::<String>::new());
        let left = "left out: the rest of storage-down: nobody knows";
        assert!(tally.notes.iter().any(|note| note.starts_with(left)), "{:?}", tally.notes);
    }
}
