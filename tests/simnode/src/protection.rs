// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! VMs that are not to be deleted: a snapshot of the root or of the delegated dataset, with a hold.

use serde_json::Value;

use crate::datasets::{Datasets, History};
use crate::error::NodeError;
use crate::payload::Payload;
use crate::vmadm::forms;

const SNAPSHOT: &str = "indestructible";
const HOLD: &str = "do_not_destroy";

/// The flag that protects the root.
pub(crate) const ZONEROOT: &str = "indestructible_zoneroot";

/// The flags with the dataset below the root that each protects.
const FLAGS: [(&str, &str); 2] = [(ZONEROOT, ""), ("indestructible_delegated", "/data")];

/// Returns true if this dataset is protected.
pub(crate) fn is_set(all: &Datasets, dataset: &str) -> bool {
    all.is_held(&format!("{dataset}@{SNAPSHOT}"))
}

/// Sets or lifts the flags that a payload has, on the datasets of the VM whose root is `top`.
pub(crate) fn apply(
    all: &mut Datasets,
    top: &str,
    payload: &Payload,
) -> Result<Vec<History>, NodeError> {
    let mut history = Vec::new();
    for (flag, below) in FLAGS {
        let Some(wanted) = payload.get(flag).map(forms::is_true) else { continue };
        let dataset = format!("{top}{below}");
        let snapshot = format!("{dataset}@{SNAPSHOT}");
        match (wanted, is_set(all, &dataset)) {
            (true, false) => {
                // The snapshot may be there without its hold: a stream brought it.
                if all.get(&snapshot).is_none() {
                    history.extend(all.snapshot(&snapshot, false)?);
                }
                history.extend(all.hold(HOLD, &snapshot, false)?);
            }
            (false, true) => {
                history.extend(all.release(HOLD, &snapshot, false)?);
                history.extend(all.destroy(&snapshot, false)?);
            }
            _ => {}
        }
    }
    Ok(history)
}

/// Refuses to delete the VM whose root is `top` while a flag is set.
pub(crate) fn check(all: &Datasets, vm: &str, top: &str) -> Result<(), NodeError> {
    let set = FLAGS.iter().find(|(_, below)| is_set(all, &format!("{top}{below}")));
    match set {
        Some((flag, _)) => {
            Err(NodeError::refused(format!("VM {vm} cannot be deleted while {flag} is set")))
        }
        None => Ok(()),
    }
}

/// The flags of a payload, as the VM has them.
pub(crate) fn flags(payload: &Payload) -> impl Iterator<Item = (&'static str, &Value)> {
    FLAGS.iter().filter_map(|(flag, _)| Some((*flag, payload.get(*flag)?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{CreateOptions, Node, Verbs, Wait, sample};

    #[tokio::test] // P38
    async fn a_protected_vm_is_not_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let options = CreateOptions { vms: 0, ..CreateOptions::new(dir.path().join("cn")) };
        let node = Node::create(&options).unwrap();
        let verbs = Verbs::new(&node, Wait::none());
        let mut vm = sample::fresh("joyent", Some(5)).unwrap();
        vm.insert("indestructible_delegated".to_string(), json!(true));
        let uuid = verbs.create(&vm).await.unwrap();
        let data = format!("zones/{uuid}/data");

        let refused = verbs.delete(&uuid).await.unwrap_err().to_string();
        assert!(refused.contains("indestructible_delegated"), "{refused}");
        for dataset in [data.clone(), format!("zones/{uuid}")] {
            let busy = node.zfs(|all| all.destroy(&dataset, true)).unwrap_err().to_string();
            assert!(busy.contains("@indestructible: dataset is busy"), "{busy}");
        }
        // A stream brings the snapshot without its hold: that protects nothing until it is set again.
        node.zfs(|all| all.release(HOLD, &format!("{data}@{SNAPSHOT}"), false)).unwrap();
        assert!(check(&node.datasets().unwrap(), &uuid, &format!("zones/{uuid}")).is_ok());

        let set = |flag: &str, value: bool| Payload::from_iter([(flag.to_string(), json!(value))]);
        verbs.update(&uuid, &set("indestructible_delegated", true)).await.unwrap();
        verbs.update(&uuid, &set("indestructible_zoneroot", true)).await.unwrap();
        verbs.update(&uuid, &set("indestructible_delegated", false)).await.unwrap();
        assert!(verbs.delete(&uuid).await.is_err());
        verbs.update(&uuid, &set("indestructible_zoneroot", false)).await.unwrap();
        verbs.delete(&uuid).await.unwrap();
        assert!(node.datasets().unwrap().get(&data).is_none());
    }
}
