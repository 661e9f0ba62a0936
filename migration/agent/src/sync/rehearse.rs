// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The last sync, planned to its end while the VM runs.

use uuid::Uuid;

use super::send::sent;
use super::talk::Sync;
use crate::failed::Failed;
use crate::parts::Parts;
use crate::work::Work;
use crate::zfs::Cause;
use migration_core::protocol::About;
use migration_core::stream::Rate;
use migration_core::sync_plan::{self, Act, Base, Capabilities, Mode, is_below};

/// A stream has so much besides what was written.
const HEADERS: u64 = 4096;

/// Plans what the order to send this number will do, to its end, and expects what its streams will carry, where `zfs`
/// can tell. Fails with what stands against it.
pub async fn rehearse(
    parts: &Parts,
    about: &About,
    work: &Work,
    number: u32,
    to: Uuid,
) -> Result<(), Failed> {
    let (other, rate) = (parts.peers.to(to), Rate::within(&parts.streams.rate, None));
    let sync = Sync { parts, about: *about, work, other, rate };
    let vm = parts.node.existing(about.vm).await?;
    let sent = sent(parts, &vm).await?;
    let roots: Vec<String> = sent.iter().map(|it| it.dataset.clone()).collect();
    sync.has_no_key_of_its_own(&roots).await?;
    let from = parts.list(about.vm, &roots, &[]).await?;
    let to = sync.there(&roots, &from).await?;
    let name = sync_plan::snapshot_name(number);
    let full: Vec<String> = roots.iter().map(|root| format!("{root}@{name}")).collect();
    sync.have_room_for(&full).await?;
    let can = parts.zfs.can().await?;
    let is_encrypted = can.encryption && {
        let ciphers = parts.zfs.each("encryption", &roots).await?;
        ciphers.values().any(|cipher| cipher != "off" && cipher != "-")
    };
    let can =
        Capabilities { resume: can.resume, bookmarks: can.bookmarks, packages: !is_encrypted };
    let acts = sync_plan::rehearse(&sent, &from.side, &to, number, can)?;
    let mut carried = 0_u64;
    for act in &acts {
        let Act::Send { to, base, mode } = act else { continue };
        let top = to.split('@').next().unwrap_or_default();
        let is_in = |of: &str| of == top || *mode == Mode::Replicate && is_below(of, top);
        let bytes = match base {
            None => {
                let whole = from.referenced.iter().filter(|(of, _)| is_in(of));
                whole.map(|(_, bytes)| bytes).sum()
            }
            Some(Base::Snapshot(_) | Base::Bookmark(_)) => {
                let of = from.side.datasets.iter().filter(|of| is_in(of)).cloned().collect();
                let Some(written) = written(parts, of).await? else { return Ok(()) };
                written
            }
        };
        carried = carried.saturating_add(bytes).saturating_add(HEADERS);
    }
    work.expect(carried);
    Ok(())
}

/// Returns the bytes that were written to these datasets since their last snapshots; none where `zfs` does not know.
async fn written(parts: &Parts, of: Vec<String>) -> Result<Option<u64>, Failed> {
    match parts.zfs.get(&["written"], &of, false).await {
        Err(error) if error.cause() == Cause::Unknown => Ok(None),
        rows => Ok(Some(rows?.iter().filter_map(|row| row.value.parse::<u64>().ok()).sum())),
    }
}
