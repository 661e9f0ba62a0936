// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::volume::NewVolume;

const U: &str = "644810da-6ce1-40a9-93db-c23dfb772fd2";

fn params(value: Value) -> Params {
    value.as_object().cloned().unwrap()
}

fn snapshot(name: &str, state: Stage) -> Snapshot {
    let (uuid, name) = (format!("uuid-{name}"), name.to_owned());
    Snapshot { uuid, name, create_timestamp: 1_794_000_000_000, state, reason: None, asked: None }
}

fn volume(state: State, snapshots: &[(&str, Stage)]) -> Volume {
    let mut volume = Volume::new(NewVolume::sample());
    volume.set_state(state);
    let all: Vec<Snapshot> = snapshots.iter().map(|(name, stage)| snapshot(name, *stage)).collect();
    volume.set_snapshots(&all);
    volume
}

fn stages(volume: &Volume) -> Vec<(String, Stage)> {
    volume.snapshots().into_iter().map(|it| (it.name, it.state)).collect()
}

#[test] // V130
fn the_parameters_of_snapshots_are_checked() {
    let upper = U.to_uppercase();
    for (bad, said) in [
        (json!({}), "missing mandatory parameter: uuid"),
        (json!({"uuid": "x"}), "is not a valid uuid UUID"),
        (json!({"uuid": upper}), "is not a valid uuid UUID"),
        (json!({"uuid": U, "owner_uuid": 7}), "is not a valid owner_uuid UUID"),
        (json!({"uuid": U, "name": "a"}), "snapshot name must match"),
        (json!({"uuid": U, "name": "-a"}), "snapshot name must match"),
        (json!({"uuid": U, "name": "ab@c"}), "snapshot name must match"),
        (json!({"uuid": U, "name": "a".repeat(257)}), "snapshot name is too long"),
        (json!({"uuid": U, "name": ["ab", "ab"]}), "snapshot name must be a string"),
        (json!({"uuid": U, "size": 1}), "invalid parameter: size"),
    ] {
        for refused in [
            create(&params(bad.clone())).unwrap_err(),
            list(&params(bad.clone())).unwrap_err(),
            one(&params(bad.clone())).unwrap_err(),
            roll_back(&params(bad.clone())).unwrap_err(),
        ] {
            assert!(refused.to_string().contains(said), "{bad}: {refused}");
            assert_eq!((refused.status(), refused.code()), (409, Some("ValidationError")));
        }
    }
    assert!(create(&params(json!({"uuid": U, "name": ""}))).unwrap().name.is_none());
    assert!(list(&params(json!({"uuid": U, "name": ""}))).is_err());
    assert!(one(&params(json!({"uuid": U}))).is_err());
}

#[test] // V136
fn a_roll_back_is_asked_for_by_name_or_by_uuid() {
    let of = |rest: Value| {
        let mut all = params(rest);
        all.insert("uuid".to_owned(), json!(U));
        roll_back(&all)
    };
    assert_eq!(of(json!({"name": "ab"})).unwrap().to, Which::Name("ab".to_owned()));
    assert_eq!(of(json!({"snapshot_uuid": U})).unwrap().to, Which::Uuid(U.to_owned()));
    for bad in [json!({}), json!({"name": "ab", "snapshot_uuid": U}), json!({"snapshot_uuid": "x"})]
    {
        assert!(of(bad.clone()).is_err(), "{bad}");
    }
    for (force, expected) in [
        (json!(true), Some(true)),
        (json!("true"), Some(true)),
        (json!("false"), Some(false)),
        (json!(1), None),
        (json!("yes"), None),
        (json!(null), None),
    ] {
        let asked = of(json!({"name": "ab", "force": force}));
        assert_eq!(asked.ok().map(|asked| asked.force), expected, "{force}");
    }
}

#[test] // V132
fn a_volume_has_so_many_snapshots_of_different_names() {
    use Stage::{Created, Creating, Deleting, Failed};
    let begin = |volume: &mut Volume, name: &str, most: usize| {
        begin_create(volume, snapshot(name, Creating), most)
    };
    for (has, name, expected) in [
        (vec![], "a", Ok(vec!["a"])),
        (vec![("a", Created)], "a", Err(409)),
        (vec![("a", Creating)], "a", Err(409)),
        (vec![("a", Deleting)], "a", Err(409)),
        (vec![("a", Created), ("b", Deleting)], "c", Err(409)),
        // What failed makes way.
        (vec![("a", Failed), ("b", Failed)], "a", Ok(vec!["a"])),
        (vec![("a", Created), ("b", Failed)], "c", Ok(vec!["a", "c"])),
    ] {
        let mut volume = volume(State::Ready, &has);
        let done = begin(&mut volume, name, 2);
        let names: Vec<String> = volume.snapshots().into_iter().map(|it| it.name).collect();
        let done = done.map(|()| names).map_err(|refused| refused.status());
        let expected = expected.map(|all| all.into_iter().map(str::to_owned).collect());
        assert_eq!(done, expected, "{has:?} {name}");
    }
    let mut full = volume(State::Ready, &[]);
    for at in 0..16 {
        begin(&mut full, &format!("s{at}"), 16).unwrap();
    }
    let refused = begin(&mut full, "one more", 16).unwrap_err();
    assert_eq!((refused.status(), refused.code()), (409, Some("TooManyVolumeSnapshots")));
}

#[test] // V133
fn what_is_asked_of_a_volume_in_each_state() {
    use State::{Creating, Deleting, Failed, Ready, RollingBack};
    let has = [("a", Stage::Created)];
    let which = Which::Name("a".to_owned());
    for (state, expected) in [
        (Creating, [false, true, false]),
        (Ready, [true, true, true]),
        (Failed, [false, true, false]),
        (Deleting, [false, false, false]),
        (RollingBack, [false, false, false]),
    ] {
        let volume = || volume(state, &has);
        let done = [
            begin_create(&mut volume(), snapshot("b", Stage::Creating), 16).is_ok(),
            begin_delete(&mut volume(), &which).is_ok(),
            begin_rollback(&mut volume(), &which).is_ok(),
        ];
        assert_eq!(done, expected, "{state}");
    }
    for (other, expected) in [
        (Stage::Created, true),
        (Stage::Failed, true),
        (Stage::Creating, false),
        (Stage::Deleting, false),
    ] {
        let mut volume = volume(Ready, &[("a", Stage::Created), ("b", other)]);
        assert_eq!(begin_rollback(&mut volume, &which).is_ok(), expected, "{other:?}");
        assert_eq!(volume.state() == RollingBack, expected, "{other:?}");
    }
    let mut failed = volume(Ready, &[("a", Stage::Failed)]);
    assert_eq!(begin_rollback(&mut failed, &which).unwrap_err().status(), 409);
    let absent = begin_rollback(&mut failed, &Which::Uuid("x".to_owned())).unwrap_err();
    assert_eq!((absent.status(), absent.code()), (404, Some("VolumeSnapshotNotFound")));
}

#[test] // V134
fn a_roll_back_stops_the_storage_vm_rolls_back_once_and_starts_it() {
    use VmState::{Destroyed, Failed, Other, Provisioning, Running, Stopped};
    let vms = [Running, Stopped, Failed, Destroyed, Provisioning, Other];
    let table = [
        (false, [Step::Stop, Step::RollBack, Step::Fail, Step::Fail, Step::Wait, Step::Wait]),
        (true, [Step::Ready, Step::Start, Step::Fail, Step::Fail, Step::Wait, Step::Wait]),
    ];
    for (is_over, row) in table {
        let rollback = Rollback { snapshot: "uuid-a".to_owned(), is_over };
        for (vm, expected) in vms.into_iter().zip(row) {
            assert_eq!(step(&rollback, vm), expected, "{is_over} {vm:?}");
        }
    }
    let mut volume = volume(State::Ready, &[("a", Stage::Created), ("b", Stage::Created)]);
    begin_rollback(&mut volume, &Which::Name("a".to_owned())).unwrap();
    ready(&mut volume, "uuid-a");
    assert_eq!(volume.state(), State::RollingBack, "before it is rolled back");
    rolled_back(&mut volume, "uuid-a", &["uuid-a".to_owned()]);
    assert_eq!(stages(&volume), [("a".to_owned(), Stage::Created)]);
    // What comes late changes nothing.
    rolled_back(&mut volume, "uuid-a", &[]);
    gave_up(&mut volume, "uuid-a", "late");
    assert!(volume.snapshots()[0].reason.is_none() && volume.snapshots().len() == 1);
    ready(&mut volume, "uuid-a");
    assert_eq!((volume.state(), volume.rollback(), due(&volume)), (State::Ready, None, None));
}

#[test] // V131
fn snapshots_are_shown_in_the_volume_and_a_roll_back_is_not() {
    let mut volume = volume(State::Ready, &[("a", Stage::Created)]);
    begin_rollback(&mut volume, &Which::Name("a".to_owned())).unwrap();
    let shown = volume.shown();
    let expected = json!([{"uuid": "uuid-a", "name": "a", "state": "created",
        "create_timestamp": "2026-11-06T21:20:00.000Z"}]);
    assert_eq!((&shown["snapshots"], &shown["state"]), (&expected, &json!("rolling_back")));
    assert!(shown.get("rollback").is_none());
    let stored = serde_json::to_string(&volume).unwrap();
    let again: Volume = serde_json::from_str(&stored).unwrap();
    assert_eq!(again, volume);
    volume.set_snapshots(&[]);
    assert!(volume.shown().get("snapshots").is_none());
}

/// One thing that happens to a volume.
#[derive(Clone, Debug)]
enum Act {
    Create(u8),
    Delete(u8),
    RollBack(u8),
    /// What is due is done; the node may say no.
    Carry(bool),
    /// What was due before is reported now.
    Late,
    Vm(VmState),
}

fn act() -> impl Strategy<Value = Act> {
    let vm = prop_oneof![
        Just(VmState::Running),
        Just(VmState::Stopped),
        Just(VmState::Failed),
        Just(VmState::Other)
    ];
    prop_oneof![
        (0u8..5).prop_map(Act::Create),
        (0u8..5).prop_map(Act::Delete),
        (0u8..5).prop_map(Act::RollBack),
        any::<bool>().prop_map(Act::Carry),
        Just(Act::Late),
        vm.prop_map(Act::Vm),
    ]
}

/// A node that does what it is asked, and a volume.
struct World {
    volume: Volume,
    node: Vec<String>,
    vm: VmState,
    made: usize,
}

impl World {
    fn begin(&mut self, act: &Act) {
        let name = |n: &u8| Which::Name(format!("s{n}"));
        // A refusal changes nothing.
        let was = self.volume.clone();
        let done = match act {
            Act::Create(n) => {
                self.made += 1;
                let mut new = snapshot(&format!("s{n}"), Stage::Creating);
                new.uuid = format!("{}", self.made);
                begin_create(&mut self.volume, new, 3)
            }
            Act::Delete(n) => begin_delete(&mut self.volume, &name(n)),
            Act::RollBack(n) => begin_rollback(&mut self.volume, &name(n)),
            _ => Ok(()),
        };
        if done.is_err() {
            assert_eq!(self.volume, was);
        }
    }

    /// Does what was due, at the volume as it is now.
    fn carry(&mut self, due: &Due, says_yes: bool) {
        let volume = &mut self.volume;
        match due {
            Due::Make(it) if says_yes => {
                if !self.node.contains(&it.uuid) {
                    self.node.push(it.uuid.clone());
                }
                made(volume, &it.uuid);
            }
            Due::Make(it) if self.node.contains(&it.uuid) => made(volume, &it.uuid),
            Due::Make(it) => failed(volume, &it.uuid, "no"),
            Due::Destroy(it) => {
                self.node.retain(|uuid| *uuid != it.uuid);
                destroyed(volume, &it.uuid);
            }
            Due::Reconcile => reconciled(volume, &self.node),
            Due::Wait => {}
            Due::RollBack(rollback) => match step(rollback, self.vm) {
                Step::Stop => self.vm = VmState::Stopped,
                Step::Start => self.vm = VmState::Running,
                Step::RollBack if says_yes => {
                    let at = self.node.iter().position(|uuid| *uuid == rollback.snapshot);
                    self.node.truncate(at.map_or(self.node.len(), |at| at + 1));
                    rolled_back(volume, &rollback.snapshot, &self.node);
                }
                Step::RollBack => gave_up(volume, &rollback.snapshot, "no"),
                Step::Ready => ready(volume, &rollback.snapshot),
                Step::Wait => self.vm = VmState::Running,
                Step::Fail => lost(volume),
            },
        }
    }
}

proptest! {
    #[test] // V135
    fn whatever_happens_the_record_ends_with_what_the_node_has(acts in prop::collection::vec(act(), 0..40)) {
        let volume = volume(State::Ready, &[]);
        let mut world = World { volume, node: Vec::new(), vm: VmState::Running, made: 0 };
        for act in &acts {
            world.begin(act);
            match act {
                Act::Vm(vm) => world.vm = *vm,
                Act::Carry(says_yes) => {
                    if let Some(due) = due(&world.volume) {
                        world.carry(&due, *says_yes);
                    }
                }
                // Another process does the same.
                Act::Late => {
                    if let Some(due) = due(&world.volume) {
                        world.carry(&due, true);
                        world.carry(&due, true);
                    }
                }
                _ => {}
            }
        }
        for _ in 0..40 {
            let Some(due) = due(&world.volume) else { break };
            world.carry(&due, true);
        }
        prop_assert_eq!(due(&world.volume), None);
        prop_assert!(world.volume.state() != State::RollingBack);
        let snapshots = world.volume.snapshots();
        let here: Vec<&String> =
            snapshots.iter().filter(|it| it.state == Stage::Created).map(|it| &it.uuid).collect();
        prop_assert_eq!(here, world.node.iter().collect::<Vec<_>>());
        let is_at_rest = |it: &Snapshot| matches!(it.state, Stage::Created | Stage::Failed);
        prop_assert!(snapshots.iter().all(is_at_rest));
    }
}
