// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What has to be true of the VM when a migration is over.

use std::path::PathBuf;

use daemon::command::Program;
use migration_core::intent::End;
use mocks::faults::Seen;
use mocks::{cnapi, napi, vmapi};
use net_agent::holds::HoldsFile;
use sdc_clients::napi::Napi;
use serde_json::{Value, json};
use simnode::Node;
use simnode::in_process::InProcess;

use super::judge::Judge;
use super::subject::{self, QUOTA, VM};

pub struct Side {
    /// Which copy it had.
    pub end: End,
    pub node: Node,
    /// Where its net-agent keeps its holds.
    pub holds: PathBuf,
}

/// The world in which it is over.
pub struct Ending<'a> {
    /// Who knows what the guest wrote last.
    pub judge: &'a Judge,
    /// Where the VM has to be.
    pub here: Side,
    /// Where nothing of it may be.
    pub there: Side,
    /// VMAPI.
    pub vmapi: &'a vmapi::Store,
    /// NAPI.
    pub napi: &'a napi::Store,
    /// NAPI as it answers.
    pub addresses: Napi,
    /// The NICs as NAPI had them at first.
    pub nics: &'a [Value],
    /// net-agent and vm-agent run.
    pub with_agents: bool,
    /// The node of the other copy was declared dead and was away when the migration ended: the service still watches
    /// what is left there, and nobody deletes it.
    pub is_watched: bool,
}

/// What is wrong, with its promise.
pub type Wrong = (&'static str, String);

impl Ending<'_> {
    /// Returns what is wrong: the VM is here, whole, and nothing of the migration is left.
    pub async fn wrongs(&self) -> Vec<Wrong> {
        let mut wrongs = self.copies();
        wrongs.extend(self.left_on(&self.here, true));
        if !self.is_watched {
            wrongs.extend(self.left_on(&self.there, false));
        }
        wrongs.extend(self.records().await);
        wrongs
    }

    /// Returns what is wrong in VMAPI and in NAPI.
    pub async fn records(&self) -> Vec<Wrong> {
        let mut wrongs = self.owned();
        wrongs.extend(self.reservations().await);
        wrongs
    }

    /// Returns what is wrong while the migration is not over: the VM runs here alone, and the records say so.
    pub fn underway(&self) -> Vec<Wrong> {
        let mut wrongs = self.owned();
        let mut wrong = |what: &str| wrongs.push(("P14", what.to_owned()));
        if !self.judge.copy(&self.here.node).is_some_and(|copy| copy.running && !copy.hidden) {
            wrong("the VM does not run where it is");
        }
        if !self.judge.copy(&self.there.node).is_some_and(|copy| !copy.running && copy.hidden) {
            wrong("the other copy is not stopped and hidden");
        }
        wrongs
    }

    fn copies(&self) -> Vec<Wrong> {
        let mut wrongs = Vec::new();
        let mut wrong = |what: &str| wrongs.push(("P14", what.to_owned()));
        match self.judge.copy(&self.here.node) {
            Some(copy) => {
                if !copy.running {
                    wrong("the VM does not run in the end");
                }
                if copy.hidden {
                    wrong("the VM is hidden in the end");
                }
                if !copy.autoboot {
                    wrong("the VM has no autoboot in the end");
                }
            }
            None => wrong("there is no VM in the end"),
        }
        match self.judge.copy(&self.there.node) {
            Some(copy) if self.is_watched && (copy.running || !copy.hidden) => {
                wrong("the copy that was replaced is not stopped and hidden");
            }
            Some(_) if !self.is_watched => wrong("the other copy is still there"),
            _ => {}
        }
        if !self.judge.is_latest(&self.here.node) {
            wrong("the VM has not what it wrote last");
        }
        let damaged = subject::damaged(&self.here.node).into_iter();
        wrongs.extend(damaged.map(|dataset| ("P13", format!("{dataset} has other contents"))));
        wrongs
    }

    /// What a node still has of the migration.
    fn left_on(&self, side: &Side, is_here: bool) -> Vec<Wrong> {
        let mut wrongs = Vec::new();
        let mut wrong = |what: String| wrongs.push(("P14", what));
        let commands = InProcess::new(&side.node);
        let zfs = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let output = commands.answer(Program::Zfs, &words);
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let rows = zfs("list -H -o name -t all -r zones");
        let own: Vec<&str> = rows.lines().filter(|row| row.contains(VM)).collect();
        if own.iter().any(|row| row.contains("@vm-migration-")) {
            wrong(format!("a sync snapshot is left: {own:?}"));
        }
        if !is_here && !own.is_empty() {
            wrong(format!("datasets of the other copy are left: {own:?}"));
        }
        if is_here {
            let quota = zfs(&format!("get -Hp -o value quota zones/{VM}"));
            if quota.trim() != (QUOTA << 30).to_string() {
                wrong(format!("the quota is {}", quota.trim()));
            }
        }
        let holds = HoldsFile::new(&side.holds).read();
        if holds.is_ok_and(|it| !it.holds.is_empty()) {
            wrong(format!("net-agent is still held on the {}'s node", side.end));
        }
        wrongs
    }

    /// VMAPI's record, and NAPI's of its NICs.
    fn owned(&self) -> Vec<Wrong> {
        let mut wrongs = Vec::new();
        let mut wrong = |what: String| wrongs.push(("P14", what));
        let cn = self.here.node.cn_uuid();
        match self.vmapi.get(VM) {
            None => wrong("VMAPI has lost the VM".to_owned()),
            Some(vm) => {
                if vm.get("server_uuid") != Some(&json!(cn)) {
                    wrong(format!("VMAPI has the VM on {:?}", vm.get("server_uuid")));
                }
                for field in ["alias", "owner_uuid", "nics", "tags"] {
                    if vm.get(field).is_none_or(Value::is_null) {
                        wrong(format!("VMAPI has lost {field}"));
                    }
                }
                if self.with_agents && vm.get("state") != Some(&json!("running")) {
                    wrong(format!("VMAPI has the VM as {:?}", vm.get("state")));
                }
            }
        }
        let nics = self.napi.nics();
        for old in self.nics {
            let Some(now) = nics.iter().find(|nic| nic["mac"] == old["mac"]) else {
                wrong(format!("NAPI has lost {}", old["mac"]));
                continue;
            };
            for field in KEPT {
                if now[field] != old[field] {
                    wrong(format!("NAPI's {field} of {} is {}", old["mac"], now[field]));
                }
            }
            if self.with_agents && now["cn_uuid"] != cn {
                wrong(format!("NAPI has {} on {}", old["mac"], now["cn_uuid"]));
            }
            if self.with_agents && now["state"] != "running" {
                wrong(format!("NAPI has {} as {}", old["mac"], now["state"]));
            }
        }
        wrongs
    }

    async fn reservations(&self) -> Vec<Wrong> {
        let mut wrongs = Vec::new();
        for nic in self.nics {
            let text = |name: &str| nic[name].as_str().unwrap_or_default().to_owned();
            let Ok(ip) = text("ip").parse() else { continue };
            let there = self.addresses.get_ip(&text("network_uuid"), ip).await;
            if there.is_ok_and(|there| there.value.reserved) {
                wrongs.push(("P14", format!("{ip} is still reserved")));
            }
        }
        wrongs
    }
}

/// Fields of a NIC that no migration changes.
const KEPT: [&str; 6] =
    ["belongs_to_uuid", "belongs_to_type", "owner_uuid", "ip", "network_uuid", "primary"];

/// Returns what NAPI and VMAPI were never to hear: a delete of one of these NICs, and that the VM is destroyed or
/// failed.
pub fn wrong_words(napi: &napi::Store, vmapi: &vmapi::Store, nics: &[Value]) -> Vec<String> {
    let bare = |mac: &str| mac.replace(':', "");
    let macs: Vec<String> = nics.iter().filter_map(|nic| nic["mac"].as_str().map(bare)).collect();
    let is_of_nic =
        |it: &Seen| macs.contains(&bare(it.path.rsplit('/').next().unwrap_or_default()));
    let is_end = |it: &Seen| {
        let body: Value = serde_json::from_str(&it.body).unwrap_or_default();
        let of_vm = if it.path.ends_with(VM) { &body } else { &body["vms"][VM] };
        ["destroyed", "failed"].iter().any(|state| of_vm["state"] == *state)
    };
    let napi = napi.log().all().into_iter();
    let deletes = napi.filter(|it| it.method == "DELETE" && is_of_nic(it));
    let vmapi = vmapi.log().all().into_iter();
    let ends = vmapi.filter(|it| it.method != "GET" && is_end(it));
    deletes.chain(ends).map(|it| format!("{} {}", it.method, it.path)).collect()
}

/// Returns CNAPI's tickets that somebody holds or waits for.
pub fn open_tickets(cnapi: &cnapi::Store) -> Vec<String> {
    let is_open =
        |ticket: &Value| ["queued", "active"].iter().any(|status| ticket["status"] == *status);
    let open = cnapi.all_tickets().into_iter().filter(is_open);
    open.map(|ticket| format!("a ticket stays: {ticket}")).collect()
}
