// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Statements 54–56, 61: the arrays of a VM and the records of their changes. The others are in
//! `vm_model::diff`.

use serde_json::{Value, json};

use super::changes::edited;
use crate::common::FakeNode;
use crate::common::scene::{A, MARK, attr, told};

/// One element goes, another one comes, and nothing names them.
fn swapped(list: &[Value], array: &str) {
    assert_eq!(list.len(), 2, "{list:?}");
    for (record, action) in list.iter().zip(["removed", "added"]) {
        assert_eq!((&record["path"], &record["action"]), (&json!([array, null]), &json!(action)));
        assert!(record.get("ident").is_none(), "{record}");
    }
}

#[tokio::test(flavor = "multi_thread")] // S54
async fn other_arrays_change_by_whole_elements() {
    let resolvers = |text: &str| attr("resolvers", text);
    let list = edited("joyent", &resolvers("8.8.8.8,9.9.9.9"), &resolvers("1.1.1.1,9.9.9.9")).await;
    swapped(&list, "resolvers");
    let (old, new) = (&list[0]["oldValue"], &list[1]["newValue"]);
    assert_eq!((old, new), (&json!("8.8.8.8"), &json!("1.1.1.1")));

    let dataset = |name: &str| format!("<dataset name=\"zones/{A}/{name}\"/>");
    swapped(&edited("joyent", &dataset("data"), &dataset("more")).await, "datasets");
    let mount =
        |kind: &str| format!("<filesystem special=\"/s\" directory=\"/t\" type=\"{kind}\"/>");
    swapped(&edited("joyent", &mount("lofs"), &mount("tmpfs")).await, "filesystems");
    let pci = |slot: &str| {
        format!(
            "<device match=\"/devices/{slot}\"><net-attr name=\"model\" value=\"passthru\"/>\
             <net-attr name=\"pci-slot\" value=\"{slot}\"/></device>"
        )
    };
    swapped(&edited("bhyve", &pci("0:8:0"), &pci("0:9:0")).await, "pci_devices");

    let node = FakeNode::one();
    let snapshot = format!("zones/{A}@vmsnap-s1");
    node.set_dataset(&snapshot, json!({"type": "snapshot", "used": "1", "written": "1"}));
    let (served, mut events) = node.serve_followed().await;
    assert_eq!(served.vm(A).await["snapshots"][0]["name"], "s1");
    node.set_dataset(&snapshot, json!({"creation": "1767261999", "written": "2"}));
    node.zfs_event(&snapshot, "set").await;
    swapped(events.soon().await["changes"].as_array().unwrap(), "snapshots");
}

#[tokio::test(flavor = "multi_thread")] // S55, B15
async fn reordering_is_no_event_and_no_change() {
    let node = FakeNode::new();
    let nic = |n: u8| {
        format!(
            "<network physical=\"eth{n}\" mac-addr=\"02:08:20:00:00:0{n}\" global-nic=\"admin\"/>"
        )
    };
    let (one, two) = (nic(0), nic(1));
    node.add_vm(A, "lx", &format!("{}{one}{two}", attr("resolvers", "8.8.8.8,9.9.9.9")));
    node.add_zone(MARK, "running", Some(7), "mark");
    let (served, mut events) = node.serve_followed().await;
    let before = served.vm(A).await;
    node.configure(A, "lx", &format!("{}{two}{one}", attr("resolvers", "9.9.9.9,8.8.8.8,9.9.9.9")));
    node.zone_event(A, "running", 5).await;
    let all = events.settled(&node, &served).await;
    // The time of the file differs: only that may be an event.
    assert!(all.iter().all(|event| told(event).is_empty()), "{all:#?}");
    let mut after = served.vm(A).await;
    after["last_modified"] = before["last_modified"].clone();
    if all.is_empty() {
        assert_eq!(after, before);
    }
}

#[tokio::test(flavor = "multi_thread")] // S56
async fn elements_are_compared_by_their_text() {
    // The same pairs in another order inside an element are another text.
    let before = "<filesystem special=\"/s\" directory=\"/t\" type=\"lofs\"/>";
    let after = "<filesystem type=\"lofs\" directory=\"/t\" special=\"/s\"/>";
    let list = edited("joyent", before, after).await;
    swapped(&list, "filesystems");
    let (old, new) = (&list[0]["oldValue"], &list[1]["newValue"]);
    assert_eq!(old, new, "equal as sets of keys");
    assert_ne!(old.to_string(), new.to_string(), "and not as texts");
}

#[tokio::test(flavor = "multi_thread")] // S61
async fn mounts_have_keys_in_the_order_that_vmadm_matches() {
    let node = FakeNode::new();
    let mount = "<filesystem special=\"/s\" directory=\"/t\" type=\"lofs\"><fsoption name=\"ro\"/></filesystem>";
    node.add_vm(A, "joyent", mount);
    let served = node.serve_quiet().await;
    let (_, text) = served.get(&format!("/vms/{A}")).await;
    let want = r#""filesystems":[{"source":"/s","target":"/t","type":"lofs","options":["ro"]}]"#;
    assert!(text.contains(want), "{text}");
}
