// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed conform peers FILE`: replays what the real VMAPI and volapi were seen to ask of CNAPI, NAPI, PAPI,
//! IMGAPI, the workflow API and VMAPI against our mocks, in the recorded world, and reports every answer
//! that differs. Where ours differs on purpose, a row of the deviations file says so.

mod calls;
mod compare; // when two answers are the same
mod replay; // the calls in their order
mod world; // the mocks, and what the recording did to the services // what was recorded

use std::path::Path;

use super::tally::{Tally, no_flags};
use super::transcript::Transcript;

/// The names of the recordings in a directory of fixtures.
pub(super) const FILES: [&str; 2] = ["vmapi-peer-calls.jsonl", "volapi-peer-calls.jsonl"];

/// Replays the calls of the recording at the path; beside it is the transcript that says what was done to the
/// world.
pub(super) fn check(path: &Path, flags: &[String]) -> anyhow::Result<Tally> {
    no_flags(flags)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let transcript = path.with_file_name(name.replace("peer-calls", "transcripts"));
    let transcript = Transcript::read(&transcript)?;
    let calls = calls::read(path)?;
    // Nothing here waits for the world: expiry and polls are the mocks' own clock.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(replay::replay(&transcript, &calls))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_calls_are_answered_alike() {
        let dir = recordings::unpacked().unwrap();
        let counts = FILES.map(|file| {
            let tally = check(&dir.path().join(file), &[]).unwrap();
            assert_eq!(tally.failures, Vec::<String>::new(), "{file}");
            tally.passed
        });
        assert_eq!(counts, [223, 583]);
    }
}
