// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Replays exchanges recorded from a service against its mock and reports every answer that differs and has no row
//! in the file of deviations.

pub(super) mod replay; // the groups in their order

mod compare; // when two answers are the same

mod rules; // where the mocks answer otherwise on purpose

use super::tally::{Tally, only};
use super::transcript::Transcript;

/// Compares with a recording; `--only GROUP` replays one group.
pub(super) fn check<W: replay::World>(
    transcript: &Transcript,
    flags: &[String],
    deviations: &str,
) -> anyhow::Result<Tally> {
    let only = only(flags)?;
    let rules = rules::Rules::read(deviations, W::KIND)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(replay::replay::<W>(transcript, rules, only))
}
