// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Writes what the plan of a pass wants written, before anything is reaped.

use futures_util::StreamExt as _;

use crate::apply;
use crate::outcome::Outcome;
use crate::parts::{Parts, Upkeep};
use crate::plan::{Action, Decision, Plan, Reason};

/// Records at once.
pub(super) const AT_ONCE: usize = 4;
/// Attempts at a backfill that fails, each of them with retries of its own.
const BACKFILLS: u32 = 3;

/// So many records could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{0} backfills failed")]
pub(super) struct Unwritten(usize);

/// Writes what the plan wants written, and waits for all of it (R8, D2). What failed is tried again a
/// few times; then a record that cannot be read stops nobody, and one that cannot be written fails the
/// pass. Returns the number of MACs that NAPI does not know.
pub(super) async fn backfill(parts: &Parts, plan: &Plan) -> Result<usize, Unwritten> {
    let mut wanted: Vec<Decision> =
        plan.decisions.iter().filter(|d| !d.is_judged()).cloned().collect();
    let (mut missing, mut retry) = (0, parts.retry());
    for tries in 1.. {
        let write = |d: Decision| async move { (written(parts, &d).await, d) };
        let tried = futures_util::stream::iter(wanted.drain(..)).map(write);
        let tried: Vec<_> = tried.buffer_unordered(AT_ONCE).collect().await;
        missing += tried.iter().filter(|(outcome, _)| *outcome == Outcome::Missing).count();
        let failed = |(outcome, _): &(Outcome, Decision)| matches!(outcome, Outcome::Failed(_));
        let failed: Vec<_> = tried.into_iter().filter(failed).collect();
        if failed.is_empty() {
            break;
        }
        if tries == BACKFILLS {
            let unwritten = |(outcome, _): &&(Outcome, Decision)| {
                matches!(outcome, Outcome::Failed(Reason::Changed(_)))
            };
            match failed.iter().filter(unwritten).count() {
                0 => break,
                count => return Err(Unwritten(count)),
            }
        }
        tokio::time::sleep(retry.next_delay()).await;
        wanted = failed.into_iter().map(|(_, decision)| decision).collect();
    }
    Ok(missing)
}

/// Writes what a decision that is no delete wants written.
async fn written(parts: &Parts, d: &Decision) -> Outcome {
    let of_vm = parts.node.with(|i| i.view.holders(d.mac).next().is_some());
    let is_own = parts.gate.identity().unwrap_or_default().macs.contains(&d.mac) || !of_vm;
    let outcome = match &d.action {
        Action::Look | Action::Write(_) | Action::AskVmapi if is_own => {
            apply::keep_up_own(parts, d.mac).await
        }
        Action::Look | Action::Write(_) | Action::AskVmapi => {
            apply::keep_up(parts, d.mac, &d.vm, false).await
        }
        Action::Defer => Outcome::Deferred(d.reason.clone()),
        Action::Delete | Action::Keep => return Outcome::Left(d.reason.clone()),
    };
    if outcome.is_open() {
        let at = parts.clock.now();
        parts.schedule.wake(&d.vm, at, Upkeep(true));
    }
    parts.status.outcome(d.mac, outcome.clone());
    outcome
}
