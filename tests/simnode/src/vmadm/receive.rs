// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `vmadm receive`: the VM that the object at the head of a bundle makes. Its datasets come after it.

use serde_json::Value;

use super::create;
use super::forms::objects_mut;
use super::surroundings::Surroundings;
use super::table::Action;
use crate::payload::Payload;
use crate::refusal::Refusal;

/// Properties that lie in the root dataset, and come with it.
const IN_ROOT: [&str; 3] = ["customer_metadata", "internal_metadata", "tags"];

/// Returns the VM as vmadm goes on with it, or why it makes none of the object.
pub fn receive(object: &Payload, around: &mut Surroundings) -> Result<Payload, Refusal> {
    let mut vm = object.clone();
    for name in IN_ROOT {
        vm.shift_remove(name);
    }
    // What the VM was about to be on its node says nothing of this one.
    vm.shift_remove("transition");
    for disk in objects_mut(&mut vm, "disks") {
        disk.insert("nocreate".to_string(), Value::Bool(true));
        if disk.contains_key("image_uuid") {
            disk.shift_remove("block_size");
        }
    }
    create::made(Action::Receive, &vm, around)
}
