// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A random change of a node by vmadm, zfs, an editor or the kernel.

use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use serde_json::{Map, json};

use simnode::edits::ConfigMap;
use simnode::state::ZoneState;
use simnode::{NodeError, Verbs, files, sample};

/// What is done to a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// zonecfg: another alias.
    Alias(String),
    /// Another tag, replaced or removed.
    Tag(String, Option<String>),
    /// `zfs set quota`, in GiB.
    Quota(u64),
    /// A snapshot of this name.
    Snapshot(String),
    /// One that goes.
    DropSnapshot(String),
    /// The zone is started, stopped or restarted, as its state allows.
    Power,
    /// The guest restarts itself.
    RestartInit,
    /// A NIC more, with an address that ends so.
    AddNic(u32),
    /// One NIC less.
    DropNic,
    /// `do_not_inventory` is turned.
    Hide(bool),
    /// The XML is written in place, as an editor does.
    RewriteXml,
    /// Another VM comes.
    Create(&'static str, u64),
    /// It goes for good.
    Delete,
}

impl Mutation {
    pub fn draw(rng: &mut StdRng) -> Self {
        let word: u16 = rng.random();
        match rng.random_range(0..100_u32) {
            0..26 => Self::Alias(format!("storm-{word}")),
            26..40 => Self::Tag(
                format!("t{}", word % 5),
                (!word.is_multiple_of(3)).then(|| word.to_string()),
            ),
            40..55 => Self::Quota(u64::from(word % 90) + 10),
            55..63 => Self::Snapshot(format!("s{}", word % 6)),
            63..69 => Self::DropSnapshot(format!("s{}", word % 6)),
            69..79 => Self::Power,
            79..82 => Self::RestartInit,
            82..86 => Self::AddNic(rng.random()),
            86..89 => Self::DropNic,
            89..92 => Self::Hide(word.is_multiple_of(2)),
            92..96 => Self::RewriteXml,
            96..98 => Self::Create(
                ["joyent-minimal", "lx", "bhyve"][usize::from(word % 3)],
                rng.next_u64(),
            ),
            _ => Self::Delete,
        }
    }

    /// Does it to the VM; an error when its state does not allow it or somebody else was faster.
    pub async fn perform(&self, verbs: &Verbs, vm: &str) -> Result<(), NodeError> {
        match self {
            Self::Alias(alias) => verbs.set_field(vm, "alias", json!(alias)).await,
            Self::Tag(key, value) => {
                let mut set = Map::new();
                if let Some(value) = value {
                    set.insert(key.clone(), json!(value));
                }
                let remove = if value.is_none() { vec![key.clone()] } else { Vec::new() };
                verbs.set_map(vm, ConfigMap::Tags, set, remove).await
            }
            Self::Quota(gib) => verbs.set_quota(vm, *gib).await,
            Self::Snapshot(name) => verbs.snapshot(vm, name).await,
            Self::DropSnapshot(name) => verbs.delete_snapshot(vm, name).await,
            Self::Power => match verbs.resolve(vm)?.state {
                ZoneState::Running if vm.ends_with(['0', '1', '2', '3', '4', '5', '6', '7']) => {
                    verbs.reboot(vm).await
                }
                ZoneState::Running => verbs.halt(vm, 0).await,
                _ => verbs.boot(vm).await,
            },
            Self::RestartInit => verbs.restart_init(vm).await,
            Self::AddNic(end) => {
                let [a, b, c, d] = end.to_be_bytes();
                let mac = format!("92:b8:{a:02x}:{b:02x}:{c:02x}:{d:02x}");
                let ip = format!("10.{}.{c}.{d}", 100 + b % 100);
                let nic = json!({"mac": mac, "ip": ip, "netmask": "255.255.255.0", "nic_tag": "external",
                    "vlan_id": 3, "primary": false, "model": "virtio"});
                let nic = nic.as_object().cloned().unwrap_or_default();
                verbs.add_nic(vm, &nic).await.map(drop)
            }
            Self::DropNic => {
                let xml = verbs.node().zone_config(vm)?;
                let mac = xml.all("network").last().and_then(|nic| nic.get("mac-addr"));
                let mac = mac.map(str::to_owned);
                let none = || NodeError::refused(format!("VM {vm} has no NIC"));
                verbs.remove_nic(vm, &mac.ok_or_else(none)?).await
            }
            Self::Hide(hidden) => verbs.hide(vm, *hidden).await,
            Self::RewriteXml => {
                let file = verbs.node().zone_xml(vm);
                // Without the lock another hand's rewriting may have just emptied the file.
                let _locked = verbs.node().lock()?;
                let text = std::fs::read(&file).map_err(|e| NodeError::io("read", &file, e))?;
                files::write_in_place(&file, &text)
            }
            Self::Create(brand, seed) => {
                verbs.create(&sample::fresh(brand, Some(*seed))?).await.map(drop)
            }
            Self::Delete => verbs.delete(vm).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use simnode::{CreateOptions, Node, Wait};
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn hands_that_rewrite_one_file_keep_its_text() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::create(&CreateOptions::new(dir.path().join("cn"))).unwrap();
        let name = node.zones().unwrap().iter().next().unwrap().zonename.clone();
        let text = || std::fs::read_to_string(node.zone_xml(&name)).unwrap();
        let before = text();
        let mut hands = JoinSet::new();
        for _ in 0..4 {
            let (verbs, name) = (Verbs::new(&node, Wait::none()), name.clone());
            hands.spawn(async move {
                for _ in 0..250 {
                    Mutation::RewriteXml.perform(&verbs, &name).await.unwrap();
                }
            });
        }
        hands.join_all().await;
        assert_eq!(text(), before);
    }
}
