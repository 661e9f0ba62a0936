// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! vminfod's loader on a simulated node: every VM composes, and each verb changes what it should.

use std::collections::HashMap;

use serde_json::{Value, json};
use simnode::{Node, Verbs, Wait};

use super::super::common::ctx;
use super::new_node;

async fn load(node: &Node) -> HashMap<String, Value> {
    let loaded = vminfod::node::load::objects(&ctx(node)).await.unwrap();
    assert!(loaded.broken.is_empty(), "{:?}", loaded.broken);
    loaded
        .vms
        .into_iter()
        .map(|vm| (vm["uuid"].as_str().unwrap().to_string(), Value::Object(vm)))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_vm_of_a_created_node_composes() {
    let (_dir, node) = new_node(24);
    let vms = load(&node).await;
    assert_eq!(vms.len(), 24);
    let mut macs = std::collections::HashSet::new();
    for vm in vms.values() {
        assert_eq!(vm["server_uuid"], node.cn_uuid());
        assert!(
            vm["zfs_filesystem"].is_string()
                && vm["owner_uuid"].is_string()
                && vm["tags"].is_object(),
            "{vm}"
        );
        assert!(vm["quota"].as_u64().unwrap() > 0);
        let running = vm["zone_state"] == "running";
        assert_eq!(running, vm["state"] == "running");
        assert_eq!(running, vm["pid"].is_number());
        assert_eq!(running, vm.get("exit_status").is_none());
        for nic in vm["nics"].as_array().unwrap() {
            assert!(macs.insert(nic["mac"].as_str().unwrap().to_string()), "a MAC twice");
            assert!(nic["network_uuid"].is_string());
        }
        for disk in vm.get("disks").and_then(Value::as_array).into_iter().flatten() {
            assert!(disk.get("missing").is_none() && disk["size"].as_u64().unwrap() > 0, "{disk}");
        }
    }
    for brand in ["joyent", "joyent-minimal", "lx", "kvm", "bhyve", "builder"] {
        assert!(vms.values().any(|vm| vm["brand"] == brand), "no {brand}");
    }
    assert!(vms.values().any(|vm| vm["docker"] == true));
    assert!(vms.values().any(|vm| vm["state"] == "stopped"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_verbs_do_is_what_the_loader_finds() {
    let (_dir, node) = new_node(12);
    let verbs = Verbs::new(&node, Wait::none());
    for (n, brand) in ["joyent", "docker", "kvm", "bhyve"].into_iter().enumerate() {
        let mut sample = simnode::sample::fresh(brand, Some(77)).unwrap();
        sample.insert("uuid".into(), json!(uuid::Uuid::from_u128(77 + n as u128).to_string()));
        let uuid = verbs.create(&sample).await.unwrap();
        let vm = load(&node).await.remove(&uuid).unwrap();
        assert_eq!((&vm["state"], &vm["autoboot"]), (&json!("running"), &json!(true)), "{brand}");
        for key in [
            "alias",
            "owner_uuid",
            "quota",
            "max_physical_memory",
            "resolvers",
            "tags",
            "routes",
            "internal_metadata",
        ] {
            let mut shown = vm[key].clone();
            if let Some(metadata) = shown.as_object_mut() {
                metadata.shift_remove("docker:id"); // vmadm makes it
            }
            assert_eq!(shown, sample[key], "{brand} {key}");
        }
        for (nic, wanted) in
            vm["nics"].as_array().unwrap().iter().zip(sample["nics"].as_array().unwrap())
        {
            for (key, value) in wanted.as_object().unwrap() {
                assert_eq!(&nic[key], value, "{brand} {key}");
            }
        }
        verbs.halt(&uuid, 256).await.unwrap();
        let mac = verbs
            .add_nic(
                &uuid,
                json!({"mac": "90:b8:d0:0a:00:07", "ip": "10.1.1.9", "netmask": "255.255.255.0", "nic_tag": "admin"})
                    .as_object()
                    .unwrap(),
            )
            .await
            .unwrap();
        verbs.snapshot(&uuid, "before").await.unwrap();
        let changes = json!({"alias": "ünder \"<&>\"", "quota": 3, "set_tags": {"k": 1}, "remove_tags": ["role"], "cpu_cap": 50, "resolvers": []});
        verbs.update(&uuid, changes.as_object().unwrap()).await.unwrap();
        verbs.hide(&uuid, true).await.unwrap();
        let vm = load(&node).await.remove(&uuid).unwrap();
        assert_eq!(
            (&vm["state"], &vm["exit_status"], &vm["autoboot"]),
            (&json!("stopped"), &json!(1), &json!(false))
        );
        assert_eq!(
            (&vm["alias"], &vm["quota"], &vm["cpu_cap"]),
            (&json!("ünder \"<&>\""), &json!(3), &json!(50))
        );
        assert_eq!((&vm["tags"]["k"], vm["tags"].get("role")), (&json!(1), None));
        assert_eq!(vm["resolvers"], json!([]));
        assert_eq!(
            (&vm["do_not_inventory"], &vm["snapshots"][0]["name"]),
            (&json!(true), &json!("before"))
        );
        let last = vm["nics"].as_array().unwrap().last().unwrap()["mac"].as_str().unwrap();
        assert_eq!((last, mac.as_str()), ("90:b8:d0:0a:00:07", "90:b8:d0:0a:00:07"));
        verbs.rollback(&uuid, "before").await.unwrap();
        verbs.remove_nic(&uuid, &mac.to_uppercase()).await.unwrap();
        verbs.hide(&uuid, false).await.unwrap();
        verbs.boot(&uuid).await.unwrap();
        verbs.reboot(&uuid).await.unwrap();
        let vm = load(&node).await.remove(&uuid).unwrap();
        assert_eq!(
            (&vm["tags"], vm.get("do_not_inventory")),
            (&sample["tags"], None),
            "files came back"
        );
        assert_eq!(vm["nics"].as_array().unwrap().len(), sample["nics"].as_array().unwrap().len());
        verbs.delete_raw(&uuid).await.unwrap();
        assert!(!load(&node).await.contains_key(&uuid));
    }
    let left = node.datasets().unwrap();
    assert!(left.sorted().iter().all(|d| !d.name.contains("@vmsnap-")));
}
