// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A recorded node, read as a whole and one VM at a time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use daemon::command::{Call, Commands, Output, Program, Run};
use pretty_assertions::assert_eq;
use serde_json::Value;
use vm_model::VmObject;
use vminfod::node::root::Root;
use vminfod::node::{Ctx, load};

/// Recorded outputs; of zfs only the types and columns that are asked for.
struct Kept(PathBuf);

impl Commands for Kept {
    fn run(&self, call: Call) -> Run<'_> {
        let read = |file: &str| std::fs::read(self.0.join(file)).unwrap();
        let stdout = match call.program {
            Program::Zoneadm => read("zoneadm-list.txt"),
            Program::Zfs => simnode::recorded::zfs_list(&read("zfs-list.txt"), &call.args),
            _ => read("zoneinfo.json"),
        };
        Box::pin(async move { Ok(Output { status: 0, stdout, stderr: Vec::new() }) })
    }
}

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cn-basic")
}

fn ctx() -> Ctx {
    Ctx::new(Root::new(kept().join("root")), Arc::new(Kept(kept().join("cmd"))))
}

/// Git does not keep file times, so the field made of them is left out on both sides.
fn without_times(mut vm: VmObject) -> VmObject {
    assert!(vm.shift_remove("last_modified").is_some());
    vm
}

#[tokio::test]
async fn recorded_node_gives_the_recorded_objects() {
    let expected = std::fs::read(kept().join("expected/vms.json")).unwrap();
    let Value::Array(expected) = vm_model::js::parse(&expected).unwrap() else { panic!() };
    let node = load::objects(&ctx()).await.unwrap();
    assert!(node.broken.is_empty(), "{:?}", node.broken);
    assert_eq!(node.vms.len(), expected.len());
    for want in expected {
        let vm = node.vms.iter().find(|vm| vm["uuid"] == want["uuid"]).unwrap().clone();
        let (got, want) = (without_times(vm), without_times(want.as_object().unwrap().clone()));
        let text = vm_model::js::to_ascii(&got);
        assert_eq!(text, vm_model::js::to_ascii(&want), "the order of the keys counts");
    }
}

#[tokio::test]
async fn one_vm_equals_its_object_in_the_whole_node() {
    let node = load::objects(&ctx()).await.unwrap();
    for vm in &node.vms {
        let name = vm["zonename"].as_str().unwrap();
        let alone = load::object(&ctx(), name).await.unwrap().unwrap();
        assert_eq!(vm_model::js::to_ascii(&alone), vm_model::js::to_ascii(vm));
    }
    assert!(load::object(&ctx(), "no-such-zone").await.unwrap().is_none());
}
