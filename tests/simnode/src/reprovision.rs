// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `vmadm reprovision`: the root of a zone is made anew from an image. What stays is the delegated dataset `data` and
//! the folder `config`, which has the zone's metadata. Everything else is new: `/var/db`, `/opt`, `/etc`, `/root`, and
//! `/var/svc/.ran-user-script` is gone, so that the zone is set up again.

use crate::error::NodeError;
use crate::files;
use crate::node::Node;
use crate::protection;
use crate::state::Zone;
use crate::xml::Element;

/// What vmadm keeps of a zone's own directory.
const CONFIG: &str = "config";

/// Refuses a zone whose data would not outlive it.
fn check(zone: &Zone, configured: &Element) -> Result<(), NodeError> {
    let z = zone.zonename.as_str();
    let delegated: Vec<&str> = configured.all("dataset").filter_map(|it| it.get("name")).collect();
    let data = format!("{}/data", zone.zonepath.trim_start_matches('/'));
    match delegated.as_slice() {
        [] => Ok(()),
        [one] if *one == data => Ok(()),
        [one] => Err(NodeError::refused(format!(
            "cannot reprovision VM {z}: its delegated dataset is {one}, not {data}"
        ))),
        all => Err(NodeError::refused(format!(
            "cannot reprovision VM {z}: it has {} delegated datasets",
            all.len()
        ))),
    }
}

impl Node {
    /// Looks whether a zone may be reprovisioned with this image. Returns the image's snapshot.
    pub(crate) fn may_reprovision(&self, zone: &Zone, image: &str) -> Result<String, NodeError> {
        let (all, origin) = (self.datasets()?, format!("zones/{image}@final"));
        if all.get(&origin).is_none() {
            return Err(NodeError::NoSuchDataset(origin));
        }
        let (z, top) = (zone.zonename.as_str(), zone.zonepath.trim_start_matches('/'));
        if protection::is_set(&all, top) {
            let flag = protection::ZONEROOT;
            return Err(NodeError::refused(format!(
                "VM {z} cannot be reprovisioned while {flag} is set"
            )));
        }
        check(zone, &self.zone_config(z)?)?;
        Ok(origin)
    }

    /// Makes the root of a stopped zone anew, as vmadm does: its data is renamed away, then the old root, and back.
    pub(crate) fn reprovision(&self, top: &str, origin: &str) -> Result<(), NodeError> {
        let (data, old) = (format!("{top}/data"), format!("{top}-reprovisioning-root"));
        let away = format!("{top}-reprovisioning-data");
        let has_data = self.datasets()?.get(&data).is_some();
        if has_data {
            self.zfs_rename(&data, &away)?;
        }
        self.zfs_rename(top, &old)?;
        self.zfs(|all| {
            let mut history = all.clone_from(origin, top)?;
            let was = all.need(&old)?.clone();
            for key in was.local.iter().filter(|key| *key != "mountpoint") {
                history.extend(all.set(top, key, was.get(key))?);
            }
            Ok(history)
        })?;
        let config = |of: &str| self.path(&format!("/{of}/{CONFIG}"));
        if config(&old).is_dir() {
            files::remove_tree(&config(top))?;
            files::copy_tree(&config(&old), &config(top))?;
        }
        self.zfs(|all| all.destroy(&old, true))?;
        if has_data { self.zfs_rename(&away, &data) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{CreateOptions, Node, Verbs, Wait, sample};

    /// Where a service of today keeps what it must not lose, and where it does not.
    const KEPT: &str = "data/migration-service/authority.json";
    const LOST: [&str; 3] = [
        "root/var/db/migration-service/store.redb",
        "root/root/.sdc-migrate/identity.json",
        "root/var/svc/.ran-user-script",
    ];

    #[tokio::test] // Z3
    async fn only_the_delegated_dataset_and_the_metadata_outlive_a_reprovision() {
        let dir = tempfile::tempdir().unwrap();
        let options = CreateOptions { vms: 0, ..CreateOptions::new(dir.path().join("cn")) };
        let node = Node::create(&options).unwrap();
        let verbs = Verbs::new(&node, Wait::none());
        let vm = sample::fresh("joyent", Some(5)).unwrap();
        let image = vm["image_uuid"].as_str().unwrap().to_owned();
        let uuid = verbs.create(&vm).await.unwrap();
        let top = format!("zones/{uuid}");
        let at = |path: &str| node.path(&format!("/{top}/{path}"));
        for path in LOST.iter().chain([&KEPT]) {
            std::fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            std::fs::write(at(path), "mine").unwrap();
        }
        let metadata = std::fs::read(at("config/metadata.json")).unwrap();
        node.zfs(|all| all.snapshot(&format!("{top}@before"), false)).unwrap();
        verbs.reprovision(&uuid, &image).await.unwrap();
        assert_eq!(std::fs::read_to_string(at(KEPT)).unwrap(), "mine");
        assert_eq!(std::fs::read(at("config/metadata.json")).unwrap(), metadata);
        for path in LOST {
            assert!(!at(path).exists(), "{path} outlived it");
        }
        let all = node.datasets().unwrap();
        assert!(all.get(&format!("{top}@before")).is_none(), "a snapshot of the old root");
        assert!(all.rows.keys().all(|name| !name.contains("reprovisioning")));
        assert_eq!(node.zone(&uuid).unwrap().state.as_str(), "running");
    }

    #[tokio::test] // Z4
    async fn what_would_be_lost_or_is_protected_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let options = CreateOptions { vms: 0, ..CreateOptions::new(dir.path().join("cn")) };
        let node = Node::create(&options).unwrap();
        let verbs = Verbs::new(&node, Wait::none());
        let vm = sample::fresh("joyent", Some(5)).unwrap();
        let image = vm["image_uuid"].as_str().unwrap().to_owned();
        let uuid = verbs.create(&vm).await.unwrap();
        let refused = async || verbs.reprovision(&uuid, &image).await.unwrap_err().to_string();
        let flag = |on: bool| {
            crate::payload::Payload::from_iter([("indestructible_zoneroot".to_owned(), json!(on))])
        };
        verbs.update(&uuid, &flag(true)).await.unwrap();
        assert!(refused().await.contains("indestructible_zoneroot"));
        verbs.update(&uuid, &flag(false)).await.unwrap();
        let second = crate::xml::Element::new("dataset", &[("name", "zones/second")]);
        node.zone_reconfigure(&uuid, |xml| {
            xml.children.push(second);
            Ok(())
        })
        .unwrap();
        assert!(refused().await.contains("2 delegated datasets"));
        node.zone_reconfigure(&uuid, |xml| {
            xml.children.retain(|it| it.get("name") != Some(&format!("zones/{uuid}/data")));
            Ok(())
        })
        .unwrap();
        assert!(refused().await.contains("is zones/second, not"));
        assert_eq!(node.zone(&uuid).unwrap().state.as_str(), "running", "nothing was stopped");
    }
}
