// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed conform napi FILE`: replays exchanges recorded from the real NAPI against the mock
//! and reports every answer that differs. It never excuses a difference that the format of
//! the recordings does not call volatile.

mod compare;
mod replay;

use std::path::Path;

use super::tally::{Tally, only};

pub use super::transcript::{Transcript, TranscriptError};
pub use replay::replay;

/// Compares with the recording at the path; `--only GROUP` replays one group.
pub(super) fn check(path: &Path, flags: &[String]) -> anyhow::Result<Tally> {
    let only = only(flags)?;
    let transcript = Transcript::read(path)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    Ok(runtime.block_on(replay(&transcript, only)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // S44
    fn a_group_with_an_unknown_step_is_left_out_and_said() {
        let text = [
            r#"{"seed": "s", "mode": "master", "requests": []}"#,
            r#"{"group": "g", "seed": "s", "mode": "master", "setup": []}"#,
            r#"{"group": "g", "world": {"do": "something new"}}"#,
            r#"{"id": 1, "group": "g", "request": {"method": "GET", "path": "/nope"}, "response": {"status": 200}}"#,
            r#"{"group": "h", "seed": "s", "mode": "master", "setup": []}"#,
            r#"{"id": 2, "group": "h", "request": {"method": "GET", "path": "/nics/x"}, "response": {"status": 200}}"#,
        ];
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("new.jsonl");
        std::fs::write(&path, text.join("\n")).unwrap();
        let tally = check(&path, &[]).unwrap();
        assert_eq!((tally.passed, tally.failures.len()), (0, 1), "only the other group is judged");
        assert!(tally.notes[0].starts_with("left out: g: nobody knows"), "{:?}", tally.notes);
    }
}
