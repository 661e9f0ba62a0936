// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

#![allow(clippy::unwrap_used)]

use pretty_assertions::assert_eq;

use super::*;

fn vm(fields: Value) -> Map<String, Value> {
    let mut vm = json!({
        "uuid": "u", "alias": "a", "ram": 1024, "state": "running", "autoboot": true, "zoneid": 3,
        "tags": {"keep": "1", "old": true}, "customer_metadata": {}, "resolvers": ["8.8.8.8"],
        "nics": [{"mac": "m1", "ip": "10.0.0.1", "interface": "net0"}],
        "brand": "kvm", "vcpus": 1, "disks": [{"path": "/dev/zvol/rdsk/zones/u-disk0", "size": 10}],
    });
    vm.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    vm.as_object().unwrap().clone()
}

#[test] // R25 M17
fn what_was_changed_during_the_syncs_is_brought_over() {
    let hidden = json!({
        "state": "stopped", "autoboot": false, "do_not_inventory": true, "zoneid": 9,
        "nics": [{"mac": "m1", "ip": "10.0.0.1", "interface": "net3"}],
    });
    assert!(bring_over(&vm(json!({})), &vm(hidden.clone())).is_empty());
    let source = vm(json!({
        "alias": "b", "ram": 2048, "tags": {"keep": "1", "new": 2, "odd": {}}, "resolvers": [],
        "customer_metadata": {"user-script": "x"},
        "nics": [{"mac": "m1", "ip": "10.0.0.2", "interface": "net0"}, {"mac": "m2", "ip": "10.0.0.3"}],
    }));
    let mut target = vm(hidden);
    target.insert("nics".into(), json!([{"mac": "m1", "ip": "10.0.0.1"}, {"mac": "m0"}]));
    assert_eq!(
        json!(bring_over(&source, &target)),
        json!([
            {
                "alias": "b", "ram": 2048, "resolvers": "", "set_customer_metadata": {"user-script": "x"},
                "set_tags": {"new": 2}, "remove_tags": ["old"], "remove_nics": ["m0"],
                "update_nics": [{"ip": "10.0.0.2", "mac": "m1"}],
            },
            {"add_nics": [{"ip": "10.0.0.3", "mac": "m2"}]},
        ])
    );
}

/// The updates for a VM whose source lacks what its target has.
fn updates(brand: &str, source: Value, target: Value) -> Value {
    let [source, target] = [source, target].map(|mut vm| {
        vm["brand"] = json!(brand);
        vm.as_object().unwrap().clone()
    });
    let updates = bring_over(&source, &target);
    assert!(updates.iter().find_map(foreign).is_none(), "an agent takes it: {updates:?}");
    json!(updates)
}

#[test] // M77
fn what_the_source_lacks_is_removed_as_vmadm_takes_it() {
    for (brand, target, want) in [
        (
            "joyent",
            json!({"alias": "a", "cpu_cap": 100}),
            json!([{"alias": null, "cpu_cap": null}]),
        ),
        ("joyent", json!({"fs_allowed": "ufs"}), json!([{"fs_allowed": ""}])),
        ("joyent", json!({"resolvers": ["8.8.8.8"]}), json!([{"resolvers": ""}])),
        (
            "joyent",
            json!({"firewall_enabled": true, "maintain_resolvers": true, "archive_on_delete": true}),
            json!([{"archive_on_delete": false, "firewall_enabled": false, "maintain_resolvers": false}]),
        ),
        (
            "lx",
            json!({"restart_init": false, "docker": true}),
            json!([{"docker": false, "restart_init": true}]),
        ),
        // Nothing removes these, and what a brand does not take is no difference.
        (
            "joyent",
            json!({"max_swap": 512, "max_physical_memory": 512, "limit_priv": "default"}),
            json!([]),
        ),
        ("joyent", json!({"vcpus": 2, "com1": "x", "qemu_opts": "x"}), json!([])),
        ("bhyve", json!({"package_name": "p", "com1": "/dev/zconsole", "tmpfs": 5}), json!([])),
        // Nor are these.
        (
            "joyent",
            json!({"alias": "", "resolvers": [""], "docker": false, "fs_allowed": null}),
            json!([]),
        ),
    ] {
        assert_eq!(updates(brand, json!({}), target.clone()), want, "{brand} {target}");
    }
}

#[test] // M77
fn fractions_and_limits_are_compared_as_vmadm_settles_them() {
    let alike = [
        (json!({"quota": 10.5}), json!({"quota": 11})),
        (
            json!({"max_physical_memory": 1024, "max_swap": 100, "tmpfs": 2048}),
            json!({"max_physical_memory": 1024, "max_swap": 1024, "tmpfs": 1024}),
        ),
    ];
    for (source, target) in alike {
        assert_eq!(updates("joyent", source, target), json!([]));
    }
    // An update of one limit moves the others: all are given.
    let source = json!({"max_physical_memory": 2048, "max_locked_memory": 2048, "max_swap": 4096, "tmpfs": 2048});
    let target = json!({"max_physical_memory": 1024, "max_locked_memory": 2048, "max_swap": 4096, "tmpfs": 2048});
    assert_eq!(updates("joyent", source.clone(), target), json!([source]));
}

#[test] // M77
fn an_update_of_a_bhyve_vm_names_its_consoles() {
    let source = json!({"alias": "b", "com1": "socket,/tmp/x", "com2": "/dev/zconsole"});
    let target = json!({"alias": "a", "com1": "socket,/tmp/x", "com2": "/dev/zconsole"});
    let want = json!([{"alias": "b", "com1": "socket,/tmp/x", "com2": "/dev/zconsole"}]);
    assert_eq!(updates("bhyve", source, target), want);
}

#[test] // M77
fn a_nic_is_updated_by_what_changes_or_removed_and_added_again() {
    let nic = |fields: Value| {
        let mut nic = json!({
            "mac": "m", "interface": "net0", "nic_tag": "sdc_overlay/7", "vlan_id": 0, "ip": "10.0.0.1",
            "ips": ["10.0.0.1/24"], "netmask": "255.255.255.0", "gateway": "10.0.0.254", "primary": true,
        });
        for (key, value) in fields.as_object().unwrap() {
            match value.is_null() {
                true => drop(nic.as_object_mut().unwrap().shift_remove(key)),
                false => nic[key] = value.clone(),
            }
        }
        nic
    };
    let plain = nic(json!({}));
    let of = |nics: &[Value]| json!({ "nics": nics });
    let given = |nic: &Value| {
        let mut nic = nic.clone();
        nic.as_object_mut().unwrap().shift_remove("interface");
        nic
    };
    for (source, there, want) in [
        (nic(json!({"interface": "net4"})), plain.clone(), json!([])),
        (
            nic(json!({"ip": "10.0.0.2", "ips": ["10.0.0.2/24"]})),
            plain.clone(),
            json!([{"update_nics": [{"ip": "10.0.0.2", "ips": ["10.0.0.2/24"], "mac": "m"}]}]),
        ),
        (
            plain.clone(),
            nic(json!({"allow_ip_spoofing": true, "dhcp_server": true})),
            json!([{"update_nics": [{"allow_ip_spoofing": false, "dhcp_server": false, "mac": "m"}]}]),
        ),
    ] {
        assert_eq!(updates("joyent", of(&[source]), of(&[there])), want);
    }
    for there in [json!({"mtu": 9000}), json!({"nic_tag": "external"}), json!({"vlan_id": 3})] {
        let want = json!([{"remove_nics": ["m"]}, {"add_nics": [given(&plain)]}]);
        assert_eq!(updates("joyent", of(std::slice::from_ref(&plain)), of(&[nic(there)])), want);
    }
    // The primary NIC gives that up to another one, never by itself.
    let second = |primary: Value| nic(json!({"mac": "n", "primary": primary}));
    let (source, target) =
        ([nic(json!({"primary": null})), second(json!(true))], [plain, second(Value::Null)]);
    let want = json!([{"update_nics": [{"primary": true, "mac": "n"}]}]);
    assert_eq!(updates("joyent", of(&source), of(&target)), want);
}

#[test] // R25
fn what_no_update_changes_is_told_from_what_one_does() {
    for (changed, want) in [
        (json!({"state": "stopped", "zoneid": null}), SettingsMatch::Same),
        (
            json!({"disks": [{"path": "/dev/zvol/rdsk/zones/u-disk0", "size": 20}]}),
            SettingsMatch::Same,
        ),
        (json!({"ram": 2048}), SettingsMatch::Differ),
        (json!({"vcpus": 4}), SettingsMatch::Differ),
        (json!({"brand": "bhyve"}), SettingsMatch::Remade),
        (json!({"image_uuid": "another", "ram": 2048}), SettingsMatch::Remade),
        (json!({"disks": []}), SettingsMatch::Remade),
    ] {
        assert_eq!(settings(&vm(changed.clone()), &vm(json!({}))), want, "{changed}");
    }
}
