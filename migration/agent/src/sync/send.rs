// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The sender's end of a sync: plans, takes the snapshot, and sends what the other node lacks.
//!
//! A stream can be cut at any byte, and either agent can die. So nothing of a plan is kept: after each step it is made
//! again from what both nodes show, and a sync is over when nothing is left to do.

use uuid::Uuid;

use super::talk::Sync;
use crate::failed::Failed;
use crate::parts::Parts;
use crate::quotas;
use crate::vm;
use crate::work::Work;
use crate::zfs::{Cause, args};
use migration_core::intent::End;
use migration_core::protocol::{About, Offer, Properties};
use migration_core::stream::Rate;
use migration_core::sync_plan::{self, Act, Capabilities, Sent};

/// Returns the datasets of a VM that are sent.
pub async fn sent(parts: &Parts, vm: &sdc_clients::vminfod::VmObject) -> Result<Vec<Sent>, Failed> {
    let mut vm = vm::to_sync(vm).ok_or(Failed::NoDataset)?;
    if vm.is_docker {
        let shared = format!("{}/volumes", vm.zfs_filesystem);
        vm.has_shared_volumes = !parts.zfs.each("type", &[shared]).await?.is_empty();
    }
    Ok(sync_plan::sent(&vm))
}

/// Takes the snapshot of this number where it is missing, and brings the other copy to it.
/// Fails with [`Failed`]; what was received in part stays for the next try.
pub async fn send(
    parts: &Parts,
    about: &About,
    work: &Work,
    number: u32,
    (to, mbps): (Uuid, Option<u32>),
) -> Result<(), Failed> {
    let other = parts.peers.to(to);
    let sync =
        Sync { parts, about: *about, work, other, rate: Rate::within(&parts.streams.rate, mbps) };
    let id = about.vm;
    let vm = parts.node.existing(about.vm).await?;
    let sent = sent(parts, &vm).await?;
    let roots: Vec<String> = sent.iter().map(|it| it.dataset.clone()).collect();
    for root in &roots {
        quotas::lift_tight(parts, about.migration, root).await?;
    }
    let can = parts.zfs.can().await?;
    let mut can = Capabilities { resume: can.resume, bookmarks: can.bookmarks, packages: true };
    let mut last = Vec::new();
    let mut from = parts.recent(id, &roots).await?;
    let mut to = sync.there(&roots, &from).await?;
    loop {
        // What the source has is never replaced.
        let may_restart = about.end == End::Source;
        let acts = sync_plan::plan(&sent, &from.side, &to, number, can, may_restart)?;
        if acts.is_empty() {
            return sync.is_whole(number, &roots, &from.side).await;
        }
        if acts == last {
            return Err(Failed::Stuck);
        }
        for act in &acts {
            match sync.act(act, number, &from).await {
                // The plan is made again, for streams that do not need what is refused.
                Err(Failed::Zfs(error)) if error.cause() == Cause::Encrypted && can.packages => {
                    sync.has_no_key_of_its_own(&roots).await?;
                    can.packages = false;
                    break;
                }
                done => done?,
            }
        }
        if acts.iter().any(Act::changes_sender) {
            from = parts.list(id, &roots, &[]).await?;
        } else if acts.iter().any(Act::is_stream) {
            // It may take hours, in which both sides change.
            from = parts.recent(id, &roots).await?;
        }
        // The meaning of a token depends on the sender's snapshots.
        if acts.iter().any(Act::changes_receiver) || !to.tokens.is_empty() {
            to = sync.there(&roots, &from).await?;
        }
        last = acts;
    }
}

/// Sends the snapshot of an image that the other node lacks.
pub async fn send_image(
    parts: &Parts,
    about: &About,
    work: &Work,
    image: Uuid,
    to: Uuid,
) -> Result<(), Failed> {
    let other = parts.peers.to(to);
    let sync =
        Sync { parts, about: *about, work, other, rate: Rate::within(&parts.streams.rate, None) };
    let dataset = format!("{}/{image}", parts.zfs.pool());
    let snapshot = format!("{dataset}@final");
    let there = sync.received(Vec::new(), vec![snapshot.clone()]).await?;
    let guid = parts.zfs.each("guid", std::slice::from_ref(&snapshot)).await?.remove(&snapshot);
    let guid = guid.and_then(|guid| guid.parse().ok());
    let guid = guid.ok_or_else(|| sync_plan::Refusal::Missing(snapshot.clone()))?;
    if there.side.has(guid) {
        return Ok(());
    }
    let offer = Offer {
        about: sync.theirs(about.revision),
        dataset,
        image: Some(image),
        properties: Properties::new(),
        is_bare: false,
    };
    let words = args(&["-p", &snapshot]);
    sync.expect(&words, None).await?;
    sync.stream(offer, words).await
}
