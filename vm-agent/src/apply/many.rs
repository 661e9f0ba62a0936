// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The comparison of a start: VMAPI's list, a synced view, at most one write of many records. Turns go
//! on meanwhile, and what they write or wrote is left out of it; a turn of a VM that it is about waits for it.

use std::collections::BTreeSet;
use std::convert::Infallible;

use daemon::agent::{Permit, Refusal};
use sdc_clients::{Class, Error};

use crate::parts::Parts;
use crate::plan::{Reason, Record, Start, named};
use crate::status::Count;
use crate::writer::{Many, One};

/// Why a comparison has to be repeated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotStarted {
    /// VMAPI does not list.
    #[error("cannot read VMAPI's list")]
    List(#[source] Error),
    /// vminfod does not show.
    #[error("cannot read vminfod's view")]
    View(#[source] Error),
    /// VMAPI does not take the differences.
    #[error("cannot write VMAPI's records")]
    Write(#[source] Error),
    /// The node was lost meanwhile.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// Compares all that VMAPI lists here with all that the node shows. What it cannot settle is woken.
#[tracing::instrument(name = "start", skip_all)]
pub(crate) async fn compare(parts: &Parts) -> Result<(), NotStarted> {
    let records = parts.clients.lists.records(&parts.of_node()).await.map_err(NotStarted::List)?;
    // Waited for before the view is taken, so that what is written is fresh.
    let _admitted = parts.admission().await;
    parts.turns.note();
    let view = parts.clients.vminfod.vms(true).await.map_err(NotStarted::View)?;
    let listed = records.len();
    for record in &records {
        if let Some(vm) = named(record) {
            parts.note_record(&vm, Some(&Record(record.clone())));
        }
    }
    let mut start = Start::of(parts.judge(), records, &view);
    start.hidden.iter().for_each(|vm| parts.node.note_hidden(vm));
    tracing::info!(
        listed,
        vms = view.vms.len(),
        differ = start.batch.len() + start.first.len(),
        gone = start.gone.len(),
        "compared with VMAPI's list"
    );
    let alone = parts.turns.write(|turned| leave_to_turns(parts, turned, &mut start));
    for (vm, why) in &start.why {
        let waits = start.alone.contains(vm);
        let action = if start.batch.contains_key(vm) { "put" } else { "nothing" };
        parts.status.decided(vm, if waits { "wait" } else { action }, why.clone(), waits);
    }
    write(parts, &mut start).await?;
    drop(alone);
    parts.node.compared();
    let now = parts.clock.now();
    for vm in &start.settled {
        if let Some(at) = parts.node.told(vm) {
            parts.schedule.wake(vm, at, ());
        }
    }
    for vm in &start.gone {
        if parts.node.miss(vm) {
            parts.schedule.wake_changed(vm, now, ());
        }
    }
    for vm in &start.alone {
        parts.schedule.wake_changed(vm, now, ());
    }
    Ok(())
}

/// Leaves out what is newer than the view: VMs that were hidden or went since, and those that had a turn. Returns those
/// that are left.
fn leave_to_turns(parts: &Parts, turned: &BTreeSet<String>, start: &mut Start) -> BTreeSet<String> {
    parts.node.with(|known| {
        let is_ours = |vm: &String| known.shows(vm) && !turned.contains(vm);
        start.batch.retain(|vm, _| is_ours(vm));
        start.first.retain(|(vm, _)| is_ours(vm));
        start.why.retain(|vm, _| is_ours(vm));
    });
    start.batch.keys().chain(start.first.iter().map(|(vm, _)| vm)).cloned().collect()
}

/// Writes what differs. A record that VMAPI does not take is left to its VM's turn.
async fn write(parts: &Parts, start: &mut Start) -> Result<(), NotStarted> {
    if start.first.is_empty() && start.batch.is_empty() {
        return Ok(());
    }
    match parts.gate.writable() {
        Err(Refusal::ReportMode) => {
            parts.status.add(Count::Reported, start.first.len() + start.batch.len());
            return Ok(());
        }
        writable => writable?,
    }
    for (vm, object) in std::mem::take(&mut start.first) {
        // The writes before this one took time.
        let decide = |permit: Permit<'_, One>| {
            let shows = parts.node.with(|known| known.shows(&vm));
            shows.then(|| parts.clients.writer.put(permit, &object)).ok_or(())
        };
        let Ok(sent) = parts.gate.write(One(vm.clone()), decide).await? else { continue };
        if taken(parts, sent, [vm.as_str()])? {
            parts.status.count(Count::Puts);
            parts.status.wrote(&vm, "put");
            parts.status.decided(&vm, "put", Reason::Bare, false);
            start.settled.insert(vm);
        } else {
            start.alone.insert(vm);
        }
    }
    parts.node.with(|known| start.batch.retain(|vm, _| known.shows(vm)));
    if start.batch.is_empty() {
        return Ok(());
    }
    let decide = |permit: Permit<'_, Many>| {
        Ok::<_, Infallible>(parts.clients.writer.put_many(permit, &start.batch))
    };
    let Ok(sent) = parts.gate.write(Many(parts.cn_uuid.clone()), decide).await?;
    let vms = start.batch.keys().cloned();
    if taken(parts, sent, start.batch.keys().map(String::as_str))? {
        parts.status.count(Count::Batches);
        parts.status.add(Count::Batched, start.batch.len());
        for (vm, object) in &start.batch {
            parts.status.wrote(vm, "batch");
            let written = object.as_object().map(|object| Record(object.clone()));
            parts.note_record(vm, written.as_ref());
        }
        start.settled.extend(vms);
    } else {
        start.alone.extend(vms);
    }
    Ok(())
}

/// Returns false if VMAPI refuses the records: then each is tried on its own.
fn taken<'a>(
    parts: &Parts,
    sent: Result<(), Error>,
    vms: impl IntoIterator<Item = &'a str>,
) -> Result<bool, NotStarted> {
    if let Err(error) = &sent {
        parts.unanswered(error, vms);
    }
    match sent {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.class(), Class::Server | Class::Invalid | Class::Conflict) => {
            parts.failed(&error);
            Ok(false)
        }
        Err(error) => Err(NotStarted::Write(error)),
    }
}
