// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The first reading of the node: the port opens after it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use vm_model::origin::{Origin, ParseError};
use vm_model::stale::Stale;

use super::engine::Reconciler;
use super::reading::ReadFault;
use super::status::Concerns;
use super::tasks::Done;
use super::vms::Reasons;
use super::witness::Witnesses;
use crate::node::LoadError;
use crate::node::blocking::{in_shares, threads};
use crate::node::load::{self, Known, Node};
use crate::store::stored;

/// The port waits this long for the first listing of snapshots; the start method has 300 s.
const SNAPSHOTS_LIMIT: Duration = Duration::from_secs(240);

/// While some zones of the index have no readable row, the list is read again for this time; then the
/// port opens with those zones in `errors`.
const COMPLETE_LIMIT: Duration = Duration::from_secs(60);
/// The longest pause between two first loads: clients wait for the port.
const PAUSE: Duration = Duration::from_secs(5);

impl Reconciler {
    /// Reads the node for the first time. Returns true when every zone is loaded or failed, false at a
    /// shutdown.
    pub async fn first_load(&mut self) -> bool {
        // The reading covers all earlier signals.
        self.seams.inbox.take();
        let mut failures = 0;
        let limit = Instant::now() + SNAPSHOTS_LIMIT;
        let complete_by = Instant::now() + COMPLETE_LIMIT;
        let now = Instant::now();
        if self.datasets.begin_snapshots(now) {
            self.list_snapshots();
        }
        let shutdown = self.seams.shutdown.clone();
        loop {
            let began = Instant::now();
            // A dropped reading kills its commands.
            let result = tokio::select! {
                result = load::node(&self.seams.ctx, Known::new(), threads(), None) => result,
                () = shutdown.wait() => return false,
            };
            let is_late = Instant::now() >= complete_by;
            let result = result.and_then(|node| {
                check_complete(&node.zones.unlisted, node.zones.indexed, is_late)?;
                Ok(node)
            });
            match result {
                Ok(node) => {
                    let snapshots = tokio::select! {
                        done = timeout_at(limit, self.tasks.next()), if !self.tasks.is_empty() => done.ok(),
                        () = shutdown.wait() => return false,
                        else => None,
                    };
                    self.seed(node, snapshots, began).await;
                    self.status.refreshed(began, Ok(Vec::new()));
                    return true;
                }
                Err(error) => {
                    failures += 1;
                    let (source, what) = (error.source_name(), error.to_string());
                    if self.status.trouble("node", Concerns::Nothing, source, what) {
                        tracing::error!(source = error.source_name(), reason = %error,
                            "the node cannot be read: trying again");
                    }
                    let pause = self.pause(failures).min(PAUSE);
                    // Cancel-safe: nothing is held.
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = shutdown.wait() => return false,
                    }
                }
            }
        }
    }

    /// Stores the objects of the first load, without events.
    async fn seed(&mut self, mut node: Node, snapshots: Option<Done>, began: Instant) {
        self.take_node(&mut node, began);
        let (is_listed, failed) = match snapshots {
            Some(Done::Snapshots(Ok(table))) => {
                self.snapshots_read(Ok(table));
                (true, None)
            }
            Some(Done::Snapshots(Err(error))) => (false, Some(error)),
            _ => {
                tracing::warn!("starting without snapshots: they are not listed yet");
                (false, None)
            }
        };
        let all = node.parts(&self.datasets.tables);
        let (names, parts): (Vec<_>, Vec<_>) =
            all.map(|(row, parts)| (Arc::clone(&row.zonename), parts)).unzip();
        let root = self.seams.ctx.root.clone();
        let composed = in_shares(parts, move |parts| {
            let parts = parts?;
            let stored = stored(&load::composed(&root, &parts)?);
            Ok::<_, LoadError>((parts, stored))
        });
        let (mut first, mut last, mut broken) = (Vec::new(), Vec::new(), Vec::new());
        for (name, composed) in names.into_iter().zip(composed.await) {
            match composed {
                Ok((parts, stored)) => {
                    let list = if parts.is_receiving() { &mut last } else { &mut first };
                    list.push((Arc::clone(&name), stored));
                    self.vms.adopt(&name, parts);
                    if let Some(vm) = self.vms.get_mut(&name) {
                        vm.reads.note(Stale::ALL, began);
                    }
                }
                Err(error) => broken.push((name, error)),
            }
        }
        first.append(&mut last);
        for name in self.vms.outranked() {
            first.retain(|(other, _)| *other != name);
            let shown = self.vms.shown_instead_of(&name).unwrap_or_default();
            broken.push((name, load::outranked_by(&shown)));
        }
        tracing::info!(vms = first.len(), broken = broken.len(), "first load done");
        self.store.seed(first);
        if !is_listed {
            let names = self.vms.known().map(|(name, _)| Arc::clone(name)).collect();
            self.status.edit(|view| view.without_snapshots = names);
        }
        if let Some(error) = failed {
            self.snapshots_read(Err(error));
        }
        for (name, error) in broken {
            self.note_broken(&name, error, Reasons::RETRY);
        }
        for name in node.zones.strays {
            // A reading of its own says whether its row was only late.
            self.vms.mark(&name, Stale::ALL, Reasons::REFRESH, Instant::now());
            let witnesses = Witnesses { xml: true, ..Witnesses::default() };
            self.note_broken(&name.into(), ReadFault::Disputed(witnesses), Reasons::RETRY);
        }
        for name in node.zones.unlisted {
            let what = "the zone index lists it, zoneadm has no readable row for it";
            let error = LoadError::from(ParseError::content(Origin::Zoneadm, what));
            self.note_broken(&name.into(), error, Reasons::RETRY);
        }
    }
}

/// Fails if the list of zoneadm may not be shown; `unlisted` are the zones of the index that have no
/// readable row, `indexed` counts all of the index. While two or more of its zones, and more than half
/// of them, are unlisted the port stays closed, so that no client takes them for deleted. Fewer only
/// delay it.
fn check_complete(unlisted: &[String], indexed: usize, is_late: bool) -> Result<(), ParseError> {
    let missing = unlisted.len();
    let is_most = missing >= 2 && missing * 2 > indexed;
    if missing == 0 || !is_most && is_late {
        return Ok(());
    }
    let (named, rest) =
        (unlisted.get(..3).unwrap_or(unlisted), if missing > 3 { " ..." } else { "" });
    let named = named.join(" ");
    let what = format!(
        "expected a row for each of the {indexed} zones of the zone index, {missing} have none: {named}{rest}"
    );
    Err(ParseError::content(Origin::Zoneadm, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listing_without_most_zones_of_the_index_is_incomplete() {
        let unlisted = |count: usize| (0..count).map(|n| format!("z{n}")).collect::<Vec<_>>();
        // Unlisted, in the index, whether it may be shown at once and late.
        for (missing, indexed, now, late) in [
            (0, 0, true, true),
            (0, 9, true, true),
            (1, 1, false, true),
            (1, 9, false, true),
            (2, 2, false, false),
            (2, 4, false, true),
            (3, 4, false, false),
            (40, 50, false, false),
        ] {
            let unlisted = unlisted(missing);
            let is_shown = |is_late| check_complete(&unlisted, indexed, is_late).is_ok();
            assert_eq!((is_shown(false), is_shown(true)), (now, late), "{missing} of {indexed}");
        }
        let error = check_complete(&unlisted(5), 5, true).unwrap_err().to_string();
        assert!(error.contains("5 have none: z0 z1 z2 ..."), "{error}");
    }
}
