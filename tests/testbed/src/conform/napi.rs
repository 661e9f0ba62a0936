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
    let mut tally = runtime.block_on(replay(&transcript, only));
    tally.notes.push("left out: none".to_owned());
    Ok(tally)
}
