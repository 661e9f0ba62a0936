// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Executes orders. Each function can be called again at any time, and after kill -9: what it made or changed
//! is in the state file before, and it reads the node first.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use daemon::command::CommandError;
use sdc_clients::vminfod::VmObject;
use uuid::Uuid;

use super::counts::Outcome;
use super::failed::Failed;
use super::memory::{Entry, NotTaken};
use super::node::NodeError;
use super::parts::Parts;
use super::work::Work;
use super::zfs::{Cause, args};
use super::{in_the_way, mounts, observe, quotas, sync, vm};
use migration_core::bring_over::foreign;
use migration_core::intent::Power;
use migration_core::protocol::{About, Doing, Failure, Order, State, What};
use migration_core::sync_plan::Side;

/// How long an answer may wait at most.
const WAITS: Duration = Duration::from_secs(20);
/// A program that does not end is killed so long after another order has come.
const GRACE: Duration = Duration::from_secs(20);
/// So often a copy is deleted that vmadm does not delete, and the pause between two tries.
const DELETES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(5);

/// Accepts an order, and waits for its end as long as it asks.
pub async fn order(parts: &Arc<Parts>, order: Order) -> Result<Doing, NotTaken> {
    let Order { about, wait_ms, order: what, instead } = order;
    let id = about.migration;
    if what == What::Over && parts.memory.is_over(id) {
        let (state, warnings) = (State::Done, Vec::new());
        return Ok(Doing {
            order: what,
            state,
            progress: None,
            warnings,
            no_room: false,
            runs: None,
        });
    }
    parts.memory.accept_with(&about, |entry| named(entry, &what, instead)).await?;
    let is_newest = || parts.memory.is_newest(&about);
    let (work, is_new) = parts.works.join(id, what, about.revision, is_newest).await?;
    if is_new && !work.what.is_receive() {
        let (of, work, stop) = (Arc::clone(parts), Arc::clone(&work), parts.shutdown.clone());
        parts.tasks.spawn("order", async move {
            // Dropping it at any await is what kill -9 does, and the state file is for that.
            tokio::select! {
                biased;
                () = stop.wait() => {}
                () = run(&of, &about, &work) => {}
            }
        });
    }
    work.wait(Duration::from_millis(wait_ms).min(WAITS)).await;
    let mut doing = work.doing();
    doing.runs = parts.running.of(about.vm).filter(|_| doing.state == State::Running);
    if work.what == What::Over && doing.state == State::Done {
        parts.works.forget(id);
    }
    Ok(doing)
}

/// What an order names of the other copy is on this disk before it is executed: the service's store may be lost.
fn named(entry: &mut Entry, what: &What, instead: Option<Uuid>) {
    match what {
        What::Send { to: other, .. }
        | What::Rehearse { to: other, .. }
        | What::SendImage { to: other, .. }
        | What::Receive { from: other, .. } => entry.other = Some(*other),
        What::Show | What::Boot => entry.instead = instead,
        What::Hide | What::Delete => entry.instead = None,
        _ => {}
    }
}

async fn run(parts: &Parts, about: &About, work: &Work) {
    let what = &work.what;
    // Dropping it is what kill -9 does. What ends by itself does so before.
    let replaced = async {
        work.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    let executed = async {
        tokio::select! {
            done = execute(parts, about, work) => done,
            () = replaced => Err(Failed::Cancelled),
        }
    };
    let done = daemon::tasks::caught("order", executed).await;
    let (state, outcome) = match &done {
        Some(Ok(())) => (State::Done, Outcome::Done),
        Some(Err(failed)) => {
            let Failure { error, fatal, .. } = failed.failure();
            if failed.is_full_there() {
                work.found_no_room();
            }
            let outcome = match failed {
                Failed::Cancelled => Outcome::Cancelled,
                _ => Outcome::Failed,
            };
            (State::Failed { error, fatal }, outcome)
        }
        None => {
            let error = "the agent failed; its log says where".to_owned();
            (State::Failed { error, fatal: true }, Outcome::Failed)
        }
    };
    let (id, vm, order) = (about.migration, about.vm, what.name());
    match &state {
        State::Failed { error, .. } => {
            // It may have met what was not listed.
            parts.listings.changed(vm);
            tracing::warn!(migration = %id, %vm, order, reason = error, "an order failed; its reason was reported to migration-service");
        }
        _ => tracing::info!(migration = %id, %vm, order, "order done"),
    }
    parts.counts.order(what, outcome);
    parts.streams.bytes_out.fetch_add(work.meter.bytes(), Ordering::Relaxed);
    work.finish(state);
}

async fn execute(parts: &Parts, about: &About, work: &Work) -> Result<(), Failed> {
    let (node, memory, id, vm) = (&parts.node, &parts.memory, about.migration, about.vm);
    match &work.what {
        What::Hold => {
            memory.change(id, |entry| entry.hold = true).await?;
            Ok(node.hold(vm, id).await?)
        }
        What::Release => {
            // First, so that it is not renewed.
            memory.change(id, |entry| entry.hold = false).await?;
            Ok(node.release(vm).await?)
        }
        What::Autoboot { on: true } => {
            node.set_autoboot(vm, true).await?;
            Ok(memory.change(id, |entry| entry.give(|power| power.autoboot = false)).await?)
        }
        What::Autoboot { on: false } => {
            take(parts, about).await?;
            Ok(node.set_autoboot(vm, false).await?)
        }
        What::Stop => {
            take(parts, about).await?;
            Ok(node.stop(vm).await?)
        }
        What::Boot => {
            mount(parts, about).await?;
            node.boot(vm).await?;
            Ok(memory.change(id, |entry| entry.give(|power| power.running = false)).await?)
        }
        What::Hide => {
            memory.change(id, |entry| entry.hidden = true).await?;
            Ok(node.set_hidden(vm, true).await?)
        }
        What::Show => {
            mount(parts, about).await?;
            node.set_hidden(vm, false).await?;
            Ok(memory.change(id, |entry| entry.hidden = false).await?)
        }
        What::Send { number, to, mbps } => {
            sync::send(parts, about, work, *number, (*to, *mbps)).await
        }
        What::Rehearse { number, to } => sync::rehearse(parts, about, work, *number, *to).await,
        What::SendImage { image, to } => sync::send_image(parts, about, work, *image, *to).await,
        What::Receive { .. } => Ok(()),
        What::RestoreQuota => quotas::restore(parts, id).await,
        What::Forget { keep } => forget(parts, about, work, *keep).await,
        What::Settle => {
            parts.listings.changed(vm);
            let done = settle(parts, about).await;
            parts.listings.changed(vm);
            done
        }
        What::BringOver { update, then } => {
            // Whatever was ordered, no update boots, shows or renames the copy, or adds a disk or a mount.
            let mut all = std::iter::once(update).chain(then);
            if let Some(key) = all.find_map(foreign) {
                return Err(Failed::NotCarried(key));
            }
            mount(parts, about).await?;
            for update in std::iter::once(update).chain(then) {
                let now = node.existing(vm).await?;
                node.change(&now, vm, update.clone()).await?;
            }
            node.existing(vm).await.map(drop).map_err(Failed::from)
        }
        What::Date { created } => Ok(node.set_created(vm, created).await?),
        What::Protect { of } => Ok(node.protect(vm, *of).await?),
        What::Delete => {
            parts.listings.changed(vm);
            delete(parts, about, work).await
        }
        What::Over => {
            if memory.get(id).is_some_and(|entry| entry.hold) {
                node.release(vm).await?;
            }
            quotas::restore(parts, id).await?;
            parts.listings.forget(vm);
            Ok(memory.end(about).await?)
        }
    }
}

/// Before something is taken from a VM: what it did is known here, too, where the service's store is lost.
async fn take(parts: &Parts, about: &About) -> Result<(), Failed> {
    let Some(vm) = parts.node.vm(about.vm).await? else { return Ok(()) };
    let (running, autoboot) = (vm::is_running(&vm), vm::has_autoboot(&vm));
    if running || autoboot {
        let taken = |entry: &mut Entry| {
            let power = entry.power.get_or_insert(Power { running: false, autoboot: false });
            power.running |= running;
            power.autoboot |= autoboot;
        };
        parts.memory.change(about.migration, taken).await?;
    }
    Ok(())
}

/// Returns the roots of a VM's datasets with what there is of them.
async fn datasets(
    parts: &Parts,
    about: &About,
    vm: &VmObject,
) -> Result<(Vec<String>, Side), Failed> {
    let sent = sync::sent(parts, vm).await?;
    let roots: Vec<String> = sent.into_iter().map(|it| it.dataset).collect();
    let side = parts.recent(about.vm, &roots).await?.side;
    Ok((roots, side))
}

/// Mounts what a stream that failed has left unmounted.
async fn mount(parts: &Parts, about: &About) -> Result<(), Failed> {
    let vm = parts.node.existing(about.vm).await?;
    for it in sync::sent(parts, &vm).await? {
        mounts::mount(parts, &it.dataset, &vm::delegated(&vm)).await?;
    }
    Ok(())
}

/// Destroys the sync snapshots other than this one. What is held, or cannot be destroyed otherwise, is named, and is no
/// part of the migration any more: its owner removes it.
async fn forget(
    parts: &Parts,
    about: &About,
    work: &Work,
    keep: Option<u32>,
) -> Result<(), Failed> {
    let vm = parts.node.existing(about.vm).await?;
    let (roots, side) = datasets(parts, about, &vm).await?;
    let common = observe::snapshots(&roots, &side);
    if keep.is_some_and(|keep| !common.iter().any(|it| it.number == keep)) {
        return Err(Failed::NoSnapshot);
    }
    for token in side.tokens.iter().filter(|_| keep.is_none()) {
        parts.zfs.change(args(&["receive", "-A", &token.dataset])).await?;
    }
    let (mut left, mut gone) = (BTreeSet::new(), Vec::new());
    for name in side.ours(|number| Some(number) != keep) {
        let now =
            match parts.zfs.get(&["guid", "userrefs"], std::slice::from_ref(&name), false).await {
                Err(error) if error.cause() == Cause::Absent => Vec::new(),
                rows => rows?,
            };
        let of = |key: &str| now.iter().find(|row| row.name == key).map(|row| row.value.as_str());
        // Another has its name since it was listed, or nothing has.
        if !of("guid").is_some_and(|guid| side.has_as(&name, guid)) {
            gone.push(name);
            continue;
        }
        let is_held = of("userrefs").is_some_and(|holds| holds != "0" && holds != "-");
        let words = args(&["destroy", &name]);
        let destroyed = match (
            super::zfs::is_of(name.split('@').next().unwrap_or_default(), about.vm),
            is_held,
        ) {
            (false, _) => Err(Failed::Foreign(name.clone())),
            (true, true) => parts.zfs.remove_once(words).await.map_err(Failed::from),
            (true, false) => parts.zfs.remove(words).await.map_err(Failed::from),
        };
        match destroyed {
            Ok(()) => gone.push(name),
            Err(why) => {
                work.warn(format!("{name} is left: {why}"));
                left.insert(name);
            }
        }
    }
    parts.listings.without(about.vm, &gone);
    if left.is_empty() {
        return Ok(());
    }
    Ok(parts.memory.change(about.migration, |entry| entry.left.append(&mut left)).await?)
}

/// Rolls all datasets back to the newest sync snapshot that all of them have, and drops what was received in part.
async fn settle(parts: &Parts, about: &About) -> Result<(), Failed> {
    let vm = parts.node.existing(about.vm).await?;
    if !vm::is_off(&vm) {
        return Err(Failed::NotOff);
    }
    let (roots, side) = datasets(parts, about, &vm).await?;
    for token in &side.tokens {
        parts.zfs.change(args(&["receive", "-A", &token.dataset])).await?;
    }
    let entry = parts.memory.get(about.migration);
    let is_whole = |number| entry.as_ref().is_none_or(|entry| !entry.may_lack(number));
    let mut common = observe::snapshots(&roots, &side);
    common.retain(|it| is_whole(it.number));
    let newest = common.last().ok_or(Failed::NoSnapshot)?.number;
    let name = migration_core::sync_plan::snapshot_name(newest);
    for dataset in &side.datasets {
        if side.of(dataset).iter().any(|row| row.number == Some(newest)) {
            parts.zfs.change(args(&["rollback", "-r", &format!("{dataset}@{name}")])).await?;
        }
    }
    parts.memory.change(about.migration, |entry| entry.incoming = false).await?;
    mount(parts, about).await
}

/// Deletes the VM. What vmadm refuses a few times it refuses until a person has done something.
async fn delete_vm(parts: &Parts, about: &About) -> Result<(), Failed> {
    let mut tries = 1;
    loop {
        match parts.node.delete(about.vm).await {
            Err(NodeError::Command(CommandError::Exit { .. })) if tries < DELETES => {
                tries += 1;
                tokio::time::sleep(PAUSE).await;
            }
            Err(error @ NodeError::Command(CommandError::Exit { .. })) => {
                return Err(Failed::NotDeleted(error));
            }
            done => return Ok(done?),
        }
    }
}

/// Deletes a copy that is stopped and hidden, with everything that `zfs` has of it. Once the VM is gone, what cannot be
/// destroyed is named and left.
async fn delete(parts: &Parts, about: &About, work: &Work) -> Result<(), Failed> {
    let root = format!("{}/{}", parts.zfs.pool(), about.vm);
    let mut roots = vec![root];
    if let Some(vm) = parts.node.vm(about.vm).await? {
        if !vm::is_off(&vm) {
            return Err(Failed::NotOff);
        }
        if vm::is_half(&vm) {
            let older = in_the_way::older_than(parts, about.vm, &vm).await?;
            if !older.is_empty() {
                return Err(Failed::NotMade(older.join(", ")));
            }
        }
        if vm::to_sync(&vm).is_some() {
            roots.extend(sync::sent(parts, &vm).await?.into_iter().map(|it| it.dataset));
        }
        // What is left when the agent dies is this copy's, and nothing else is.
        parts.memory.change(about.migration, |entry| entry.deletes = true).await?;
        delete_vm(parts, about).await?;
    } else if !parts.memory.get(about.migration).is_some_and(|entry| entry.deletes) {
        return Ok(());
    }
    for root in roots {
        let destroyed = match super::zfs::is_of(&root, about.vm) {
            true => parts.zfs.remove(args(&["destroy", "-r", &root])).await.map_err(Failed::from),
            false => Err(Failed::Foreign(root.clone())),
        };
        if let Err(why) = destroyed {
            work.warn(format!("{root} is left: {why}"));
        }
    }
    Ok(())
}
