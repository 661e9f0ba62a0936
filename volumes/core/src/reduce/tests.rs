// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The reducer: each rule once, and any facts in any order.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Map;

use super::*;
use crate::facts::Nic;
use crate::volume::NewVolume;

const OWNERS: [&str; 2] = ["o1", "o2"];

fn volume(uuid: &str, owner: &str, name: &str, vm: &str, refs: &[&str]) -> Volume {
    Volume::new(NewVolume {
        uuid: uuid.to_owned(),
        name: name.to_owned(),
        owner_uuid: owner.to_owned(),
        refs: refs.iter().map(|vm| (*vm).to_owned()).collect(),
        networks: Vec::new(),
        vm_uuid: vm.to_owned(),
        ..NewVolume::sample()
    })
}

fn ready(mut volume: Volume) -> Volume {
    volume.set_state(State::Ready);
    volume
}

fn vm(owner: &str, state: VmState, needs: Option<&[&str]>) -> Fact {
    let needs = needs.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    let (owner_uuid, tags) = (owner.to_owned(), Map::new());
    let nics = Vec::new();
    Fact::Vm(Box::new(Vm {
        owner_uuid,
        server_uuid: None,
        state,
        tags,
        nics,
        exported: None,
        needs,
    }))
}

fn nic(network: Option<&str>) -> Nic {
    Nic { mac: "m".to_owned(), network: network.map(str::to_owned) }
}

fn reservation(uuid: &str, vm: &str, name: &str) -> Reservation {
    let owner_uuid = OWNERS[0].to_owned();
    let (job_uuid, uuid, vm_uuid) = ("j".to_owned(), uuid.to_owned(), vm.to_owned());
    let volume_name = name.to_owned();
    Reservation { create_timestamp: 0, job_uuid, owner_uuid, uuid, vm_uuid, volume_name }
}

fn refs(changes: &[Change]) -> Vec<Vec<&str>> {
    let put = |change: &Change| matches!(change, Change::Put(_));
    let refs = changes.iter().filter(|change| put(change)).map(|change| match change {
        Change::Put(volume) => volume.refs(),
        _ => Vec::new(),
    });
    refs.collect()
}

#[test] // V30
fn a_vm_that_runs_or_stopped_uses_what_it_needs_and_gives_its_reservations_back() {
    let mut failed_before = volume("u0", "o1", "a", "s0", &[]);
    failed_before.set_state(State::Failed);
    let volumes = [
        ready(volume("u1", "o1", "a", "s1", &[])),
        ready(volume("u2", "o2", "a", "s2", &[])),
        volume("u3", "o1", "c", "s3", &[]),
        failed_before,
    ];
    let reservations = [reservation("r1", "c", "a"), reservation("r2", "d", "a")];
    for state in [VmState::Running, VmState::Stopped] {
        let known = vm("o1", state, Some(&["a", "b"]));
        let changes = of_vm("c", &known, &volumes, &reservations, Judged::default());
        assert_eq!(refs(&changes), [["c"]], "only the owner's newest volume of the name");
        assert_eq!(changes[1], Change::Release(reservations[0].clone()));
        assert_eq!(changes.len(), 2);
    }
}

#[test] // V31
fn a_vm_that_failed_or_is_gone_uses_nothing() {
    let volumes = [ready(volume("u1", "o1", "a", "s1", &["c", "d"]))];
    let judged = Judged::default();
    for known in [vm("o1", VmState::Failed, None), vm("o1", VmState::Destroyed, None), Fact::Gone] {
        assert_eq!(refs(&of_vm("c", &known, &volumes, &[], judged)), [["d"]], "{known:?}");
    }
    for known in [
        Fact::Nothing,
        vm("o1", VmState::Other, None),
        vm("o1", VmState::Provisioning, None),
        vm("o1", VmState::Running, None),
    ] {
        assert!(of_vm("c", &known, &volumes, &[], judged).is_empty(), "{known:?}");
    }
}

#[test] // V32
fn a_vm_that_may_still_come_keeps_its_reservation() {
    let volumes = [ready(volume("u1", "o1", "a", "s1", &["c"]))];
    let reservations = [reservation("r1", "c", "a")];
    let provisioning = vm("o1", VmState::Provisioning, None);
    for (known, jobs, changes) in [
        (&Fact::Gone, None, 0),
        (&Fact::Gone, Some(Verdict::Leave), 0),
        (&Fact::Gone, Some(Verdict::Look), 2),
        (&Fact::Gone, Some(Verdict::Stuck), 2),
        (&provisioning, Some(Verdict::Look), 0),
        (&provisioning, Some(Verdict::Stuck), 2),
    ] {
        let judged = Judged { jobs, ..Judged::default() };
        let found = of_vm("c", known, &volumes, &reservations, judged);
        assert_eq!(found.len(), changes, "{known:?} {jobs:?}");
    }
}

#[test] // V29
fn a_deleted_volume_goes_when_its_storage_vm_is_destroyed_or_gone() {
    let mut deleting = volume("u1", "o1", "a", "s1", &[]);
    deleting.set_state(State::Deleting);
    let volumes = [deleting.clone()];
    for known in [vm("o1", VmState::Destroyed, None), Fact::Gone] {
        let changes = of_vm("s1", &known, &volumes, &[], Judged::default());
        assert_eq!(changes, [Change::Remove(deleting.clone())]);
    }
    let creating = [volume("u1", "o1", "a", "s1", &[])];
    assert!(of_vm("s1", &Fact::Gone, &creating, &[], Judged::default()).is_empty());
}

#[test] // V113
fn networks_and_path_follow_the_nics_and_references_stay() {
    let mut before = ready(volume("u1", "o1", "a", "s1", &["c", "d"]));
    before.set_filesystem_path("10.0.0.1:/exports/data");
    let with = |networks: &[Option<&str>], path: &str| {
        let Fact::Vm(mut fact) = vm("o1", VmState::Running, None) else { panic!() };
        fact.nics = networks.iter().copied().map(nic).collect();
        fact.exported = Some(path.to_owned());
        Fact::Vm(fact)
    };
    let follows = Judged { follows_nics: true, ..Judged::default() };
    let after = |known: &Fact, judged: Judged| match &of_vm(
        "s1",
        known,
        &[before.clone()],
        &[],
        judged,
    )[..]
    {
        [Change::Put(volume)] => volume.clone(),
        other => panic!("{other:?}"),
    };
    let moved = with(&[Some("n2"), Some("n1"), Some("n2")], "10.1.0.1:/exports/data");
    let volume = after(&moved, follows);
    assert_eq!(volume.networks(), ["n2", "n1"]);
    assert_eq!(volume.shown()["filesystem_path"], "10.1.0.1:/exports/data");
    assert_eq!((volume.refs(), volume.state()), (vec!["c", "d"], State::Ready));
    // The same networks in another order are no news, and one NIC of no network says nothing.
    let again = of_vm("s1", &moved, &[volume], &[], follows);
    assert!(again.is_empty(), "{again:?}");
    let odd = with(&[Some("n1"), None], "10.1.0.1:/exports/data");
    assert!(after(&odd, follows).networks().is_empty());
    // As deployed: the networks of the record are those that were asked for.
    assert!(after(&moved, Judged::default()).networks().is_empty());
}

/// The records of a small data centre.
#[derive(Clone, Debug, PartialEq)]
struct World {
    volumes: BTreeMap<String, Volume>,
    reservations: BTreeMap<String, Reservation>,
}

impl World {
    fn apply(&mut self, name: &str, known: &Fact) {
        let volumes: Vec<Volume> = self.volumes.values().cloned().collect();
        let reservations: Vec<Reservation> =
            self.reservations.values().filter(|it| it.vm_uuid == name).cloned().collect();
        let jobs = Some(Verdict::Look);
        let judged = Judged { patience_over: true, jobs, follows_nics: true };
        for change in of_vm(name, known, &volumes, &reservations, judged) {
            match change {
                Change::Put(volume) => drop(self.volumes.insert(volume.uuid().to_owned(), volume)),
                Change::Remove(volume) => drop(self.volumes.remove(volume.uuid())),
                Change::Release(it) => drop(self.reservations.remove(&it.uuid)),
            }
        }
    }

    /// A full listing: storage VMs first, so that what became ready is there for its users.
    fn list(&mut self, facts: &BTreeMap<String, Fact>) {
        for storage in [true, false] {
            for (name, known) in facts.iter().filter(|(name, _)| name.starts_with('s') == storage) {
                self.apply(name, known);
            }
        }
    }

    /// Refs as a set: their order is that of their arrival.
    fn seen(&self) -> Vec<(String, State, Vec<String>, Vec<String>)> {
        let seen = self.volumes.values().map(|volume| {
            let mut refs: Vec<String> = volume.refs().iter().map(|vm| (*vm).to_owned()).collect();
            refs.sort();
            let networks = volume.networks().iter().map(|it| (*it).to_owned()).collect();
            (volume.uuid().to_owned(), volume.state(), refs, networks)
        });
        seen.collect()
    }
}

fn any_world() -> impl Strategy<Value = World> {
    let state = prop::sample::select(State::ALL.to_vec());
    let volume = (state, 0..2usize, 0..3usize, prop::collection::vec(0..4usize, 0..3));
    let reserved = (0..4usize, 0..3usize);
    let volumes = prop::collection::vec(volume, 1..5);
    let reservations = prop::collection::vec(reserved, 0..4);
    (volumes, reservations).prop_map(|(volumes, reservations)| {
        let volumes = volumes.into_iter().enumerate().map(|(at, (state, owner, name, refs))| {
            let uuid = format!("u{at}");
            let mut made = super::tests::volume(
                &uuid,
                OWNERS[owner],
                ["a", "b", "c"][name],
                &format!("s{at}"),
                &[],
            );
            made.set_state(state);
            for vm in refs {
                made.add_ref(&format!("c{vm}"));
            }
            (uuid, made)
        });
        let reservations = reservations.into_iter().enumerate().map(|(at, (vm, name))| {
            let uuid = format!("r{at}");
            (uuid.clone(), reservation(&uuid, &format!("c{vm}"), ["a", "b", "c"][name]))
        });
        World { volumes: volumes.collect(), reservations: reservations.collect() }
    })
}

fn any_facts() -> impl Strategy<Value = BTreeMap<String, Fact>> {
    let states = [
        VmState::Running,
        VmState::Stopped,
        VmState::Failed,
        VmState::Destroyed,
        VmState::Provisioning,
        VmState::Other,
    ];
    let fact = (prop::sample::select(states.to_vec()), 0..2usize, 0..8usize, any::<bool>());
    prop::collection::vec(fact, 9).prop_map(|facts| {
        let names = (0..5).map(|at| format!("s{at}")).chain((0..4).map(|at| format!("c{at}")));
        let known = facts.into_iter().enumerate().map(|(at, (state, owner, needs, is_gone))| {
            let nics = needs;
            // A storage VM uses no volume.
            let needs = if at < 5 { 0 } else { needs };
            let names: Vec<&str> = ["a", "b", "c"]
                .into_iter()
                .enumerate()
                .filter(|(at, _)| needs >> at & 1 == 1)
                .map(|(_, name)| name)
                .collect();
            if is_gone && needs == 0 {
                return Fact::Gone;
            }
            let mut known = vm(OWNERS[owner], state, Some(&names));
            if let (Fact::Vm(fact), true) = (&mut known, at < 5) {
                let on = ["n1", "n2", "n3"]
                    .into_iter()
                    .enumerate()
                    .filter(|(at, _)| nics >> at & 1 == 1);
                fact.nics = on.map(|(_, network)| nic(Some(network))).collect();
            }
            known
        });
        names.zip(known).collect()
    })
}

proptest! {
    #[test] // V34
    fn any_order_repetition_and_loss_of_facts_ends_alike_once_a_full_listing_came(
        world in any_world(),
        facts in any_facts(),
        heard in prop::collection::vec(0..9usize, 0..20),
    ) {
        let mut listed = world.clone();
        listed.list(&facts);
        let mut disturbed = world;
        let names: Vec<&String> = facts.keys().collect();
        for at in heard {
            disturbed.apply(names[at], &facts[names[at]]);
        }
        disturbed.list(&facts);
        prop_assert_eq!(listed.seen(), disturbed.seen());
        prop_assert_eq!(&listed.reservations, &disturbed.reservations);
        let once = disturbed.clone();
        disturbed.list(&facts);
        prop_assert_eq!(once, disturbed, "a second listing changes nothing");
    }

    #[test] // V33
    fn a_migration_of_a_user_or_of_a_storage_vm_keeps_references_and_path(
        world in any_world(),
        heard in prop::collection::vec(0..9usize, 0..20),
    ) {
        // While it is moved, VMAPI's record of it has neither brand nor owner.
        let mut moved = world.clone();
        for at in heard {
            let name = if at < 5 { format!("s{at}") } else { format!("c{}", at - 5) };
            moved.apply(&name, &Fact::Nothing);
        }
        prop_assert_eq!(world, moved);
    }
}
