// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is to be known of a VM's object. Pure.

use sdc_clients::vminfod::{VmFields as _, VmObject};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use migration_core::machine::Protection;
use migration_core::sync_plan::{Disks, Side, Vm};

/// The states of a VM, and of its zone, that does not run.
const AT_REST: [&str; 5] = ["stopped", "installed", "failed", "configured", "incomplete"];

/// Returns true if the VM runs, or is on its way up or down: in every state but those of rest.
pub fn is_running(vm: &VmObject) -> bool {
    let rests = |state: Option<&str>| state.is_some_and(|state| AT_REST.contains(&state));
    !(rests(vm.state()) && rests(vm.zone_state().or(vm.state())))
}

/// Returns true if its zone was never installed: it cannot boot.
pub fn is_half(vm: &VmObject) -> bool {
    matches!(vm.zone_state(), Some("configured" | "incomplete"))
}

/// Returns true if the VM boots with its node.
pub fn has_autoboot(vm: &VmObject) -> bool {
    vm.flag("autoboot") == Some(true)
}

/// Returns true if it is stopped and hidden.
pub fn is_off(vm: &VmObject) -> bool {
    !is_running(vm) && vm.is_hidden()
}

/// Returns which datasets are protected against deletion.
pub fn protection(vm: &VmObject) -> Protection {
    let has = |key| vm.flag(key) == Some(true);
    Protection {
        zoneroot: has("indestructible_zoneroot"),
        delegated: has("indestructible_delegated"),
    }
}

/// Returns which datasets have the snapshot that a protection makes.
pub fn marked(vm: &VmObject, side: &Side) -> Protection {
    let Some(root) = vm.text("zfs_filesystem") else { return Protection::default() };
    let has = |dataset: &str| side.of(dataset).iter().any(|row| row.name == "indestructible");
    Protection { zoneroot: has(root), delegated: has(&format!("{root}/data")) }
}

/// One run of a VM, or one rest: equal ones are the same. It compares what one node wrote with what the same node
/// wrote, and no clocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    running: bool,
    /// While it runs: the number of the zone, which each boot changes, and when it booted.
    boot: Option<(u64, String)>,
    /// While it rests: when it last ended.
    exit: Option<String>,
}

impl Run {
    /// Returns what the VM does now.
    pub fn of(vm: &VmObject) -> Run {
        let running = is_running(vm);
        let text = |key| vm.text(key).map(str::to_owned);
        let boot = vm.number("zoneid").zip(text("boot_timestamp"));
        Run {
            running,
            boot: boot.filter(|_| running),
            exit: text("exit_timestamp").filter(|_| !running),
        }
    }

    /// Returns true if the VM may have written since `then`: it runs, and ran then, is the one case of a run that
    /// goes on; everything else that differs counts as a start.
    pub fn is_started_since(&self, then: Option<&Run>) -> bool {
        match then {
            Some(then) => self != then,
            // Nothing was taken or received here: a copy that never ran has no exit.
            None => self.running || self.exit.is_some(),
        }
    }
}

/// Returns what a sync has to know of the VM; none if it has no dataset. Whether docker has shared volumes is
/// known from the datasets alone.
pub fn to_sync(vm: &VmObject) -> Option<Vm> {
    let root = vm.text("zfs_filesystem")?.to_owned();
    let disks = vm.get("disks").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let dataset = |disk: &Value| Some(disk.get("zfs_filesystem")?.as_str()?.to_owned());
    let beside: Vec<String> = disks
        .iter()
        .filter_map(dataset)
        .filter(|disk| !disk.starts_with(&format!("{root}/")))
        .collect();
    let disks = match (vm.brand(), beside.is_empty()) {
        (_, false) => Disks::Beside(beside),
        (Some("bhyve"), true) => Disks::Below,
        _ => Disks::None,
    };
    let delegated = delegated(vm).into_iter().next();
    Some(Vm {
        zfs_filesystem: root,
        disks,
        is_docker: vm.flag("docker") == Some(true),
        has_shared_volumes: false,
        delegated,
    })
}

/// Returns the datasets that are delegated to the VM.
pub fn delegated(vm: &VmObject) -> Vec<String> {
    let all = vm.get("datasets").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns true if a dataset is this one, or below it.
pub fn is_in(dataset: &str, top: &str) -> bool {
    dataset.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vm(value: Value) -> VmObject {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_vm_runs_in_every_state_but_those_of_rest() {
        for (state, zone_state, want) in [
            ("running", "running", true),
            ("stopping", "shutting_down", true),
            ("provisioning", "installed", true),
            ("down", "down", true),
            ("stopped", "installed", false),
            ("failed", "installed", false),
            ("failed", "running", true),
            ("configured", "configured", false),
            ("odd", "installed", true),
        ] {
            let object = vm(json!({"state": state, "zone_state": zone_state}));
            assert_eq!(is_running(&object), want, "{state} {zone_state}");
        }
        assert!(is_running(&vm(json!({}))));
    }

    #[test]
    fn a_run_that_goes_on_is_no_start_and_everything_else_that_differs_is_one() {
        let runs = |zone: u64, boot: &str| {
            let object = json!({"state": "running", "zone_state": "running", "zoneid": zone, "boot_timestamp": boot,
                                "pid": 7});
            Run::of(&vm(object))
        };
        let rests = |exit: Option<&str>| {
            let object =
                json!({"state": "stopped", "zone_state": "installed", "exit_timestamp": exit});
            Run::of(&vm(object))
        };
        for (what, then, now, want) in [
            ("runs on", Some(runs(1, "a")), runs(1, "a"), false),
            ("booted again", Some(runs(1, "a")), runs(2, "a"), true),
            ("stopped", Some(runs(1, "a")), rests(Some("b")), true),
            ("started", Some(rests(Some("b"))), runs(2, "c"), true),
            ("rests", Some(rests(Some("b"))), rests(Some("b")), false),
            ("was up and is down", Some(rests(Some("b"))), rests(Some("d")), true),
            ("up for the first time, and down", Some(rests(None)), rests(Some("d")), true),
            ("never ran, nothing known", None, rests(None), false),
            ("ran, nothing known", None, rests(Some("d")), true),
            ("runs, nothing known", None, runs(1, "a"), true),
        ] {
            assert_eq!(now.is_started_since(then.as_ref()), want, "{what}");
        }
    }

    #[test]
    fn the_datasets_of_a_vm_follow_from_its_object() {
        let kvm = json!({"brand": "kvm", "zfs_filesystem": "zones/u", "docker": "true", "datasets": ["zones/u/data"],
                         "disks": [{"zfs_filesystem": "zones/u-disk0"}, {"path": "/x"}]});
        let found = to_sync(&vm(kvm)).unwrap();
        assert_eq!(found.disks, Disks::Beside(vec!["zones/u-disk0".into()]));
        assert_eq!((found.is_docker, found.delegated.as_deref()), (true, Some("zones/u/data")));
        let bhyve = json!({"brand": "bhyve", "zfs_filesystem": "zones/u",
                           "disks": [{"zfs_filesystem": "zones/u/disk0"}]});
        assert_eq!(to_sync(&vm(bhyve)).unwrap().disks, Disks::Below);
        assert_eq!(to_sync(&vm(json!({"brand": "bhyve"}))), None);
    }
}
