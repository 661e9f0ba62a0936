// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Volumes, reservations and what is known of a VM → what the records should be. Each fact is applied as
//! often as it comes: the records depend on the last one only, and on the order of no two.

use super::facts::{Fact, Vm, VmState};
use super::failure::Failure;
use super::jobs::Verdict;
use super::machine::{self, Next};
use super::networks;
use super::reservation::Reservation;
use super::volume::{State, Volume};

/// What is to be done to a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The volume becomes this one.
    Put(Volume),
    /// The volume's record goes.
    Remove(Volume),
    /// The reservation's record goes.
    Release(Reservation),
}

/// What else decides.
#[derive(Clone, Copy, Debug, Default)]
pub struct Judged {
    /// The VM has been stopped for longer than a reboot takes.
    pub patience_over: bool,
    /// The states of its reservations' jobs, where they were asked.
    pub jobs: Option<Verdict>,
    /// The networks of a volume follow the NICs of its storage VM: only where they can be changed.
    pub follows_nics: bool,
}

/// Returns the changes that follow from what is known of the VM. `volumes` are those whose storage VM it
/// is, which it uses or which it needs; `reservations` are its own. Others are left alone.
pub fn of_vm(
    vm: &str,
    known: &Fact,
    volumes: &[Volume],
    reservations: &[Reservation],
    judged: Judged,
) -> Vec<Change> {
    let mut changes = Vec::new();
    for volume in volumes {
        let mut wanted = volume.clone();
        let stays = match known {
            Fact::Vm(fact) if volume.vm_uuid() == vm => drive(&mut wanted, fact, judged),
            Fact::Gone if volume.vm_uuid() == vm => volume.state() != State::Deleting,
            _ => true,
        };
        if !stays {
            changes.push(Change::Remove(volume.clone()));
            continue;
        }
        let is_needed = needs(known, &wanted, volumes);
        match uses(vm, known, &wanted, is_needed, !reservations.is_empty(), judged) {
            Use::Begins => drop(wanted.add_ref(vm)),
            Use::Ends => drop(wanted.remove_ref(vm)),
            Use::Stays => {}
        }
        if wanted != *volume {
            changes.push(Change::Put(wanted));
        }
    }
    if settles(known, !reservations.is_empty(), judged) {
        let own = reservations.iter().filter(|reservation| reservation.vm_uuid == vm);
        changes.extend(own.cloned().map(Change::Release));
    }
    changes
}

/// Returns true if the volume stays ready only for as long as a reboot of its storage VM takes.
pub fn is_degraded(volume: &Volume, known: &Fact) -> bool {
    let Fact::Vm(fact) = known else { return false };
    machine::next(volume.state(), fact.state, false) == Next::Degraded
}

/// Applies what is known of the storage VM; returns whether the volume's record stays.
fn drive(volume: &mut Volume, fact: &Vm, judged: Judged) -> bool {
    match machine::next(volume.state(), fact.state, judged.patience_over) {
        Next::Remove => return false,
        Next::Become(State::Failed) => volume.fail(&match fact.state {
            VmState::Destroyed => Failure::VmDestroyed,
            VmState::Failed => Failure::VmFailed,
            _ => Failure::Stopped,
        }),
        Next::Become(state) => volume.set_state(state),
        Next::Stay | Next::Degraded => {}
    }
    if !matches!(fact.state, VmState::Failed | VmState::Destroyed) {
        volume.set_labels(&fact.tags);
    }
    let known: Vec<&str> = fact.nics.iter().filter_map(|nic| nic.network.as_deref()).collect();
    if judged.follows_nics && !known.is_empty() && known.len() == fact.nics.len() {
        volume.set_networks(&networks::distinct(known));
    }
    if let Some(path) = &fact.exported {
        volume.set_filesystem_path(path);
    }
    true
}

enum Use {
    Begins,
    Ends,
    Stays,
}

fn uses(
    vm: &str,
    known: &Fact,
    volume: &Volume,
    is_needed: bool,
    is_reserving: bool,
    judged: Judged,
) -> Use {
    match known {
        _ if volume.vm_uuid() == vm => Use::Stays,
        _ if ended(known, is_reserving, judged) => Use::Ends,
        _ if is_needed => Use::Begins,
        _ => Use::Stays,
    }
}

/// Returns true if the VM, running or stopped, needs this volume: the newest one of its owner and of a name
/// that it needs. Whether that one is ready just now does not matter, so that it does not matter either which
/// fact came first.
fn needs(known: &Fact, volume: &Volume, volumes: &[Volume]) -> bool {
    let Fact::Vm(fact) = known else { return false };
    let is_there = matches!(fact.state, VmState::Running | VmState::Stopped);
    let is_meant = |it: &&Volume| it.owner_uuid() == fact.owner_uuid && it.name() == volume.name();
    let newest =
        volumes.iter().filter(is_meant).max_by_key(|it| (it.create_timestamp(), it.uuid()));
    is_there
        && newest.is_some_and(|newest| newest.uuid() == volume.uuid())
        && fact.needs.iter().flatten().any(|name| name == volume.name())
}

/// Returns true if the VM uses nothing any more.
fn ended(known: &Fact, is_reserving: bool, judged: Judged) -> bool {
    match known {
        Fact::Vm(fact) => match fact.state {
            VmState::Failed | VmState::Destroyed => true,
            VmState::Provisioning => judged.jobs == Some(Verdict::Stuck),
            _ => false,
        },
        // A VM that VMAPI does not know yet has a reservation, and its job shows whether it comes.
        Fact::Gone if is_reserving => judged.jobs.is_some_and(|verdict| verdict > Verdict::Leave),
        Fact::Gone => true,
        Fact::Nothing => false,
    }
}

/// Returns true if the VM needs its reservations no more.
fn settles(known: &Fact, is_reserving: bool, judged: Judged) -> bool {
    let is_there = matches!(known, Fact::Vm(fact)
        if matches!(fact.state, VmState::Running | VmState::Stopped));
    is_there || ended(known, is_reserving, judged)
}

#[cfg(test)]
mod tests;
