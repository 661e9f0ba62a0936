// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What vmadm adds to a payload with `docker`, also where the brand does not take that.

use serde_json::{Value, json};

use super::forms::is_truthy;
use super::surroundings::Surroundings;
use crate::payload::Payload;

/// Where an lx image's init is.
const INIT: &str = "/native/usr/vm/sbin/dockerinit";

/// What the VM has already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Has<'a> {
    /// `internal_metadata_namespaces`
    pub(crate) namespaces: &'a [String],
    /// `init_name`
    pub(crate) init: bool,
    /// `restart_init`
    pub(crate) restart: bool,
    /// `docker:id`
    pub(crate) id: bool,
}

/// Adds it; `metadata` is the property that sets internal metadata.
pub(crate) fn complete(
    vm: &mut Payload,
    brand: &str,
    uuid: &str,
    metadata: &str,
    has: Has<'_>,
    around: &mut Surroundings,
) {
    if !is_truthy(vm.get("docker")) {
        return;
    }
    let docker = json!("docker");
    match vm.get_mut("internal_metadata_namespaces") {
        Some(Value::Array(given)) if !given.contains(&docker) => given.push(docker),
        Some(_) => {}
        None if has.namespaces.iter().any(|name| name == "docker") => {}
        None => {
            let mut all = json!(has.namespaces);
            if let Some(all) = all.as_array_mut() {
                all.push(docker);
            }
            vm.insert("internal_metadata_namespaces".to_string(), all);
        }
    }
    // A container that ends stays ended.
    if vm.contains_key("restart_init") || !has.restart {
        vm.insert("restart_init".to_string(), json!(false));
    }
    if brand == "lx" && !has.init {
        vm.entry("init_name").or_insert(json!(INIT));
    }
    if has.id {
        return;
    }
    let given = vm.entry(metadata).or_insert_with(|| json!({}));
    if let Some(given) = given.as_object_mut().filter(|given| !given.contains_key("docker:id")) {
        let id = format!("{uuid}{}", around.uuid()).replace('-', "");
        given.insert("docker:id".to_string(), json!(id));
    }
}
