// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The receiver's end of a sync: what it has, what must go, and the streams that it takes while `Receive` is its
//! order.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use daemon::command::{Launch, Pipes, Program};
use daemon::http::Secured;
use futures_util::FutureExt as _;
use sdc_clients::identity::Identity;
use tokio::time::timeout;
use uuid::Uuid;

use super::failed::Failed;
use super::memory::Entry;
use super::parts::{Expected, Parts};
use super::quotas;
use super::vm::{self, Run};
use super::wire::{Connection, Incoming};
use super::work::Work;
use super::zfs::{args, is_of};
use super::{mounts, settled, zoned};
use migration_core::intent::End;
use migration_core::properties::PLACES;
use migration_core::protocol::{Accepted, Clear, Datasets, Gone, Offer, Received, What, Whole};
use migration_core::stream::{self, StreamError};
use migration_core::sync_plan::{Row, Side, is_deep};

/// `zfs receive` may work for so long after the end of its stream: less than the sender waits for the receipt.
const TAKES: Duration = Duration::from_secs(280);
/// The snapshots of images that a VM's datasets may be clones of.
const ORIGINS: usize = 256;
/// A stream whose sender has given up is noted as ended within so long, unless the sender's end does not come through.
const NOTED: Duration = Duration::from_secs(5);
/// `zfs receive` may take so long to end after its stream has.
const SAYS: Duration = Duration::from_secs(10);

/// The order to receive, while it lasts.
/// Fails with [`Failed::Cancelled`] where a later order replaced this one, or none did.
fn receiving(parts: &Parts, migration: Uuid) -> Result<Arc<Work>, Failed> {
    let work = parts.works.of(migration);
    let work = work.filter(|work| work.what.is_receive() && !work.is_cancelled());
    work.ok_or(Failed::Cancelled)
}

/// The same, while its order names this node as the sender.
/// Fails with [`Failed::Cancelled`], and [`Failed::NotSender`] for another node than the order names.
fn receiving_from(parts: &Parts, migration: Uuid, sender: Uuid) -> Result<Arc<Work>, Failed> {
    let work = receiving(parts, migration)?;
    match work.what {
        What::Receive { from, .. } if from == sender => Ok(work),
        _ => Err(Failed::NotSender(sender)),
    }
}

/// Checks that the datasets are the VM's own.
fn own(vm: Uuid, datasets: &[String]) -> Result<(), Failed> {
    match datasets.iter().find(|dataset| !is_of(dataset, vm)) {
        Some(foreign) => Err(Failed::Foreign(foreign.clone())),
        None => Ok(()),
    }
}

/// Returns those of these snapshots that the sender may ask for: the VM's own, and those of images. The node's other
/// VMs are none of its business.
async fn origins(parts: &Parts, vm: Uuid, asked: &[String]) -> Result<Vec<String>, Failed> {
    let mut may = Vec::new();
    for snapshot in asked.iter().take(ORIGINS) {
        let dataset = snapshot.split('@').next().unwrap_or_default();
        let name = dataset.split_once('/').filter(|(pool, _)| *pool == parts.zfs.pool());
        let image: Option<Uuid> = name.and_then(|(_, name)| name.parse().ok());
        let is_image = match image {
            Some(image) => parts.node.vm(image).await?.is_none(),
            None => false,
        };
        if is_image || is_of(dataset, vm) {
            may.push(snapshot.clone());
        }
    }
    Ok(may)
}

/// Returns what there is, to the node that sends.
pub async fn received(parts: &Parts, asked: &Received, from: Uuid) -> Result<Datasets, Failed> {
    let work = receiving_from(parts, asked.about.migration, from)?;
    parts.memory.is_known(&asked.about)?;
    own(asked.about.vm, &asked.datasets)?;
    let origins = origins(parts, asked.about.vm, &asked.origins).await?;
    let listed = parts.list(asked.about.vm, &asked.datasets, &origins).await?;
    if let Some(whole) = &asked.whole {
        let received = |entry: &mut Entry| is_whole(entry, whole, &listed.side);
        parts.memory.change(asked.about.migration, received).await?;
    }
    // Who asks for nothing else asks why its stream ended, and may ask before the end is noted here.
    let failed = match asked.datasets.is_empty() && asked.origins.is_empty() {
        true => work.why_streams_ended(NOTED).await,
        false => work.last_failure(),
    };
    Ok(Datasets { side: listed.side, referenced: listed.referenced, failed })
}

/// Notes what has arrived whole, and by what it is known.
fn is_whole(entry: &mut Entry, whole: &Whole, side: &Side) {
    (entry.incoming, entry.whole) = (false, Some(whole.number));
    entry.left.extend(whole.others.iter().cloned());
    let there: BTreeSet<String> = side.snapshots.iter().map(Row::full_name).collect();
    entry.left.retain(|name| there.contains(name));
    entry.known.received.clear();
    for row in side.snapshots.iter().filter(|row| !entry.left.contains(&row.full_name())) {
        if let Some(number) = row.number.filter(|number| !entry.known.made.contains(number)) {
            let last = entry.known.received.entry(number).or_default();
            *last = row.txg.max(*last);
        }
    }
}

/// Removes what must go before a stream.
pub async fn clear(parts: &Parts, clear: &Clear, from: Uuid) -> Result<(), Failed> {
    let (about, dataset) = (&clear.about, &clear.dataset);
    let work = receiving_from(parts, about.migration, from)?;
    parts.memory.is_known(about)?;
    own(about.vm, std::slice::from_ref(dataset))?;
    if about.end == End::Source && !may_clear(clear) {
        return Err(Failed::Foreign(dataset.clone()));
    }
    is_off(parts, about.vm).await?;
    work.cut_streams().await;
    parts.listings.changed(about.vm);
    match &clear.gone {
        Gone::Partial => parts.zfs.change(args(&["receive", "-A", dataset])).await?,
        Gone::Snapshots(names) => {
            for name in names {
                parts.zfs.remove(args(&["destroy", &format!("{dataset}@{name}")])).await?;
            }
        }
        Gone::Dataset => {
            mounts::unmount(parts, dataset).await?;
            parts.zfs.remove(args(&["destroy", "-r", dataset])).await?;
        }
        Gone::Name { to } => {
            own(about.vm, std::slice::from_ref(to))?;
            mounts::unmount(parts, dataset).await?;
            // First: a limit that is restored for a name that is not there is none.
            parts.memory.change(about.migration, |entry| entry.rename(dataset, to)).await?;
            let words = ["rename", dataset, to];
            match zoned::delegated(parts, about.vm).await?.iter().find(|it| vm::is_in(dataset, it))
            {
                Some(top) => zoned::lend(parts, about.migration, top, &words).await?,
                None => parts.zfs.change(args(&words)).await?,
            }
        }
        Gone::Origin => parts.zfs.change(args(&["promote", dataset])).await?,
    }
    Ok(())
}

/// What the source has is kept, but for what its owner has renamed, promoted or destroyed on the target since the
/// switch: what is below the VM's own datasets.
fn may_clear(clear: &Clear) -> bool {
    match &clear.gone {
        Gone::Partial => true,
        Gone::Snapshots(_) => false,
        Gone::Dataset | Gone::Origin => is_deep(&clear.dataset),
        Gone::Name { to } => is_deep(&clear.dataset) && is_deep(to),
    }
}

/// Checks that the copy is stopped and hidden, or not there.
async fn is_off(parts: &Parts, vm: Uuid) -> Result<(), Failed> {
    let vm = parts.node.vm(vm).await?;
    if vm.as_ref().is_none_or(vm::is_off) { Ok(()) } else { Err(Failed::NotOff) }
}

/// Takes an offer: makes room, and returns where the stream is expected.
pub async fn accept(parts: &Parts, offer: Offer, from: Uuid) -> Result<Accepted, Failed> {
    let about = offer.about;
    let work = receiving_from(parts, about.migration, from)?;
    parts.memory.is_known(&about)?;
    // The sender has given up the stream before this one.
    work.cut_streams().await;
    let dataset = &offer.dataset;
    if !matches!(work.what, What::Receive { image, .. } if image == offer.image) {
        return Err(Failed::Foreign(dataset.clone()));
    }
    if let Some(image) = offer.image {
        if !is_new_image(parts, image, &offer).await? {
            return Err(Failed::Foreign(dataset.clone()));
        }
    } else {
        let of: Vec<String> = offer.properties.keys().cloned().chain([dataset.clone()]).collect();
        own(about.vm, &of)?;
        is_off(parts, about.vm).await?;
        parts.listings.changed(about.vm);
        // Only the sender makes snapshots of what is off: names are enough until it reports that all is here.
        let expects = |entry: &mut Entry| {
            entry.incoming = true;
            entry.known.received.clear();
        };
        parts.memory.change(about.migration, expects).await?;
        let known = parts.zfs.each("type", std::slice::from_ref(dataset)).await?;
        if known.contains_key(dataset) {
            mounts::unmount(parts, dataset).await?;
            quotas::lift_all(parts, about.migration, dataset).await?;
        }
        quotas::expect(parts, about.migration, dataset, &offer.properties).await?;
    }
    let is_image = offer.image.is_some();
    let Offer { dataset, properties, is_bare, .. } = offer;
    let expected = Expected { from, about, dataset, is_image, properties, is_bare, work };
    let token = parts.streams.tokens.issue(expected)?;
    Ok(Accepted { address: parts.streams.wire.address(), token: token.id() })
}

/// Returns true if the dataset is that of an image that the node does not have, or has in part.
async fn is_new_image(parts: &Parts, image: Uuid, offer: &Offer) -> Result<bool, Failed> {
    let own = format!("{}/{image}", parts.zfs.pool());
    let is_vms = parts.node.vm(image).await?.is_some();
    if offer.dataset != own || !offer.properties.is_empty() || is_vms {
        return Ok(false);
    }
    let there = parts.list(offer.about.vm, std::slice::from_ref(&own), &[]).await?.side;
    Ok(there.datasets.is_empty() || !there.tokens.is_empty())
}

/// A stream that was offered.
pub type Opened = (stream::Incoming<Connection>, Expected);

/// Reads what opens a connection: a stream that was offered, or nothing.
pub async fn opened(parts: &Parts, incoming: Incoming) -> Option<Opened> {
    let streams = &parts.streams;
    let Secured { stream, peer, .. } = match incoming.await {
        Ok(secured) => secured,
        Err(error) => {
            tracing::warn!(%error, "refused a data connection: its peer did not authenticate");
            return None;
        }
    };
    let is_sender = |expected: &Expected| peer == Some(Identity::Agent(expected.from));
    match stream::accept(stream, &streams.tokens, is_sender, &streams.refusals).await {
        Ok(opened) => Some(opened),
        Err(error) => {
            tracing::warn!(
                peer = peer.map(tracing::field::display),
                %error,
                cause = error_cause(&error),
                "refused a stream: nothing of it was received, and its sender's sync fails"
            );
            None
        }
    }
}

/// Takes a stream that was offered.
pub async fn stream(parts: Arc<Parts>, (incoming, expected): Opened) {
    let Some(running) = expected.work.stream() else { return };
    let dataset = &expected.dataset;
    // Dropping the stream kills `zfs receive`; what it has taken stays for the next try.
    let done = tokio::select! {
        () = parts.shutdown.wait() => return,
        () = running.cut() => return,
        done = take(&parts, incoming, &expected) => done,
    };
    let migration = expected.about.migration;
    parts.listings.changed(expected.about.vm);
    match done {
        Ok(bytes) => tracing::info!(%migration, dataset, bytes, "received a dataset"),
        Err(failed) => {
            tracing::warn!(
                %migration,
                dataset,
                from = %expected.from,
                reason = %failed,
                "cannot receive a dataset: the sync fails; `sdc-migrate get VM` shows whether it is tried again"
            );
            running.work().stream_failed(failed.failure());
        }
    }
}

fn error_cause(error: &StreamError) -> String {
    std::error::Error::source(error).map(ToString::to_string).unwrap_or_default()
}

async fn take(
    parts: &Parts,
    incoming: stream::Incoming<Connection>,
    expected: &Expected,
) -> Result<u64, Failed> {
    let (dataset, streams) = (&expected.dataset, &parts.streams);
    let can = parts.zfs.can().await?;
    let mut words = args(&["receive", "-u"]);
    if !expected.is_image {
        words.push("-F".to_owned());
    }
    if can.resume {
        words.push("-s".to_owned());
    }
    if can.encryption {
        words.extend(args(&["-x", "encryption"]));
    }
    let delegated = zoned::delegated(parts, expected.about.vm).await?;
    // Where the whole stream is the node's to mount, it says nowhere that it is mounted, not even for a moment.
    let is_zones = |it: &String| vm::is_in(it, dataset) || vm::is_in(dataset, it);
    if can.resume && (expected.is_image || !delegated.iter().any(is_zones)) {
        words.extend(PLACES.iter().flat_map(|place| ["-x".to_owned(), (*place).to_owned()]));
    }
    words.push(dataset.clone());
    let refused =
        |message: String| Failed::Command { verb: "receive", dataset: dataset.clone(), message };
    let started = parts.commands.start(Launch::new(Program::Zfs, words, Pipes::In));
    let (stdin, _, ended) = started.map_err(|error| refused(error.to_string()))?.split();
    let ended = ended.boxed().shared();
    let mut unset = None;
    let taken = async {
        let late = || Err("it did not end in time".to_owned());
        timeout(TAKES, ended.clone()).await.unwrap_or_else(|_| late()).map_err(io::Error::other)?;
        let set = settle(parts, expected).await;
        set.map_err(|failed| {
            let text = failed.to_string();
            unset = Some(failed);
            io::Error::other(text)
        })
    };
    let all = (&*streams.rate, &streams.bytes_in, &streams.refusals);
    let fed = incoming.feed(stdin, taken, all).await;
    match fed {
        Ok(bytes) => Ok(bytes),
        Err(source) => {
            if let Some(unset) = unset {
                return Err(unset);
            }
            // Its stream has ended too early, and so does it.
            let ended = timeout(SAYS, ended).await;
            // Where it does not read on, it says why.
            if let (StreamError::Sink(_), Ok(Err(message))) = (&source, ended) {
                return Err(refused(message));
            }
            Err(Failed::Stream { dataset: dataset.clone(), source })
        }
    }
}

/// Makes a dataset that has received everything one of the copy: its properties, its mounts. What the VM did until
/// now has nothing to do with what came.
async fn settle(parts: &Parts, expected: &Expected) -> Result<(), Failed> {
    if expected.is_image {
        mounts::put_in_place(parts, &expected.dataset, &[]).await?;
        return mounts::keep_down(parts, &expected.dataset).await;
    }
    let delegated = zoned::delegated(parts, expected.about.vm).await?;
    zoned::give(parts, &delegated).await?;
    mounts::put_in_place(parts, &expected.dataset, &delegated).await?;
    settled::set_again(parts, expected, &delegated).await?;
    // From the top: what is mounted below a parent that is not stands in the parent's way.
    let top: Vec<&str> = expected.dataset.splitn(3, '/').take(2).collect();
    mounts::mount(parts, &top.join("/"), &delegated).await?;
    // Read once more: how the VM last ended is in a file that is there now.
    let run = parts.node.vm(expected.about.vm).await?.as_ref().map(Run::of);
    Ok(parts.memory.change(expected.about.migration, |entry| entry.run = run).await?)
}
