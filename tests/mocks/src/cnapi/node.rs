// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node: what it has told, what an operator has set, and what is shown of both. Pure: the caller brings the time.

use serde_json::{Map, Value, json};

use super::refusal::{Params, word};
use crate::restify::iso;

const MIB: f64 = 1_048_576.0;
/// A heartbeat keeps a node running so long; that is looked at so often.
const LIFE_MS: i64 = 11_000;
const LOOKED_AT_MS: i64 = 5_000;
/// The part of a pool that nothing is promised of.
const POOL_SPARE: f64 = 0.06;

/// A node's record.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    /// What an operator can set, and what CNAPI has made of the sysinfo.
    pub(super) fields: Params,
    pub(super) sysinfo: Params,
    pub(super) agents: Value,
    /// The VMs of its last status, by uuid.
    pub(super) vms: Map<String, Value>,
    pub(super) memory: Params,
    pub(super) disk: Params,
    /// Grows with each write.
    pub(super) etag: u64,
    /// When what it reported will be written, in milliseconds since 1970.
    pub(super) unwritten: Vec<i64>,
    /// The last heartbeat, in milliseconds since 1970.
    pub(super) heartbeat: Option<i64>,
}

/// Which parts of a record are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) sysinfo: bool,
    pub(super) agents: bool,
    pub(super) vms: bool,
    pub(super) memory: bool,
    pub(super) disk: bool,
    pub(super) heartbeat: bool,
    pub(super) capacity: bool,
}

impl Parts {
    /// All of them.
    pub(super) const ALL: Parts = Parts {
        sysinfo: true,
        agents: true,
        vms: true,
        memory: true,
        disk: true,
        heartbeat: true,
        capacity: true,
    };

    /// Those that a list's `extras` name.
    pub(super) fn named(extras: &str) -> Parts {
        let mut parts = Parts { heartbeat: true, ..Parts::default() };
        for extra in extras.split(',') {
            match extra {
                "sysinfo" => parts.sysinfo = true,
                "agents" => parts.agents = true,
                "vms" => parts.vms = true,
                "memory" => parts.memory = true,
                "disk" => parts.disk = true,
                "capacity" => {
                    parts = Parts { sysinfo: parts.sysinfo, vms: parts.vms, ..Parts::ALL };
                }
                "all" => return Parts::ALL,
                _ => {}
            }
        }
        parts
    }
}

/// What a node has left for VMs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Room {
    /// Hundredths of a CPU.
    pub(super) cpu: f64,
    /// MiB.
    pub(super) ram: f64,
    /// MiB.
    pub(super) disk: f64,
}

impl Node {
    /// A node that has just told its sysinfo for the first time.
    pub(super) fn new(uuid: &str) -> Node {
        let fields = json!({
            "comments": "", "datacenter": "lab", "rack_identifier": "", "reservation_ratio": 0.15,
            "reserved": false, "reservoir": false, "traits": {}, "uuid": uuid,
            "boot_params": { "rabbitmq": "guest:guest:127.0.0.1:5672", "smt_enabled": true },
            "boot_platform": "20200101T000000Z", "default_console": "serial", "kernel_flags": {},
            "serial": "ttyb",
        });
        Node { fields: object(&fields), agents: json!([]), ..Node::default() }
    }

    /// Takes over what the node says of itself.
    pub(super) fn tell(&mut self, sysinfo: &Params, now_ms: i64) {
        let seconds = |name: &str| {
            let text = sysinfo.get(name)?;
            let seconds = text.as_i64().or_else(|| text.as_str()?.parse().ok())?;
            Some(json!(iso(seconds * 1000)))
        };
        let is_new = !self.fields.contains_key("hostname");
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                self.fields.insert(name.to_owned(), value);
            }
        };
        set("created", Some(seconds("Zpool Creation").unwrap_or_else(|| json!(iso(now_ms)))));
        set("current_platform", sysinfo.get("Live Image").cloned());
        let boot = sysinfo.get("Boot Parameters");
        set("headnode", boot.map(|boot| json!(boot["headnode"] == "true")));
        let named = boot.and_then(|boot| boot.get("hostname"));
        set("hostname", named.or(sysinfo.get("Hostname").filter(|_| is_new)).cloned());
        set("system_type", sysinfo.get("System Type").cloned());
        set("last_boot", seconds("Boot Time"));
        set("ram", number(sysinfo.get("MiB of Memory")).map(whole));
        let setup = sysinfo.get("Setup");
        set("setup", Some(json!(setup.is_some_and(|it| *it == "true" || *it == true))));
        self.agents = sysinfo.get("SDC Agents").cloned().unwrap_or_else(|| json!([]));
        self.sysinfo = sysinfo.clone();
        self.etag += 1;
    }

    /// Takes over what the node reports every few seconds.
    pub(super) fn report(&mut self, status: &Params) {
        self.vms = status.get("vms").and_then(Value::as_object).cloned().unwrap_or_default();
        if let Some(Value::Object(memory)) = status.get("meminfo") {
            let names = [
                ("availrmem_bytes", "memory_available_bytes"),
                ("arcsize_bytes", "memory_arc_bytes"),
                ("total_bytes", "memory_total_bytes"),
            ];
            let shown =
                |(told, shown): (&str, &str)| Some((shown.to_owned(), memory.get(told)?.clone()));
            self.memory = names.into_iter().filter_map(shown).collect();
        }
        if let Some(Value::Object(disk)) = status.get("diskinfo") {
            self.disk =
                disk.iter().map(|(name, value)| (format!("disk_{name}"), value.clone())).collect();
        }
    }

    /// Writes what has been due since.
    pub(super) fn settle(&mut self, now_ms: i64) {
        let before = self.unwritten.len();
        self.unwritten.retain(|due| now_ms < *due);
        self.etag += before.saturating_sub(self.unwritten.len()) as u64;
    }

    /// Returns true for a node that was set up.
    pub(super) fn is_set_up(&self) -> bool {
        self.is("setup")
    }

    /// Returns true if a field is true.
    pub(super) fn is(&self, name: &str) -> bool {
        self.fields.get(name) == Some(&Value::Bool(true))
    }

    /// `running` from the first sysinfo on; a node that has had a heartbeat needs the next one.
    pub(super) fn status(&self, now_ms: i64) -> &str {
        let is_looked_at = |beat: i64| {
            let looked_at = now_ms - now_ms.rem_euclid(LOOKED_AT_MS);
            beat + LIFE_MS < looked_at
        };
        match self.heartbeat {
            Some(beat) if is_looked_at(beat) => match word(&self.fields, "transitional_status") {
                "" => "unknown",
                transitional => transitional,
            },
            _ => "running",
        }
    }

    fn ratio(&self) -> f64 {
        number(self.fields.get("reservation_ratio")).unwrap_or(0.15)
    }

    /// What is left beside these VMs.
    pub(super) fn room(&self, vms: &[Params]) -> Option<Room> {
        let of = |vm: &Params, name: &str| number(vm.get(name)).unwrap_or(0.0);
        let memory = |vm: &Params| of(vm, "max_physical_memory").max(of(vm, "ram"));
        let ram = number(self.sysinfo.get("MiB of Memory"))?;
        let pool = number(self.disk.get("disk_pool_size_bytes"))?;
        let used = number(self.disk.get("disk_pool_alloc_bytes")).unwrap_or(0.0);
        let cores = number(self.sysinfo.get("CPU Total Cores"))?;
        let taken: f64 = vms.iter().map(memory).sum();
        let caps: f64 = vms.iter().map(|vm| of(vm, "cpu_cap")).sum();
        Some(Room {
            cpu: (cores * 100.0 - caps / 4.0).floor(),
            ram: (ram * (1.0 - self.ratio()) - taken).floor(),
            disk: ((pool * (1.0 - POOL_SPARE) - used) / MIB).floor(),
        })
    }

    /// The VMs of its last status.
    pub(super) fn own_vms(&self) -> Vec<Params> {
        self.vms.values().filter_map(Value::as_object).cloned().collect()
    }

    /// The record as clients get it.
    pub(super) fn shown(&self, parts: Parts, now_ms: i64) -> Params {
        let mut shown = self.fields.clone();
        shown.insert("status".to_owned(), json!(self.status(now_ms)));
        let mut show = |is: bool, name: &str, value: &dyn Fn() -> Value| {
            if is {
                shown.insert(name.to_owned(), value());
            }
        };
        show(parts.sysinfo, "sysinfo", &|| json!(self.sysinfo));
        show(parts.agents, "agents", &|| self.agents.clone());
        show(parts.vms, "vms", &|| json!(self.vms));
        show(parts.heartbeat, "last_heartbeat", &|| json!(self.heartbeat.map(iso)));
        if parts.memory
            && let Some(ram) = number(self.sysinfo.get("MiB of Memory"))
        {
            let memory = |vm: &Params| number(vm.get("max_physical_memory")).unwrap_or(0.0);
            let taken: f64 = self.own_vms().iter().map(memory).sum();
            let left = (ram * MIB * (1.0 - self.ratio())).floor() - taken * MIB;
            shown.insert("memory_provisionable_bytes".to_owned(), whole(left));
        }
        if parts.memory {
            shown.extend(self.memory.clone());
        }
        if parts.disk {
            shown.extend(self.disk.clone());
        }
        if parts.capacity {
            shown.insert("score".to_owned(), json!(0));
            if self.is_set_up()
                && self.status(now_ms) == "running"
                && let Some(room) = self.room(&self.own_vms())
            {
                shown.extend(room.fields());
            }
        }
        shown
    }

    /// The NIC tags that it offers: those of links that are up.
    pub(super) fn nic_tags(&self) -> Vec<&str> {
        let kinds = ["Network Interfaces", "Virtual Network Interfaces"];
        let nics = kinds.into_iter().filter_map(|kind| self.sysinfo.get(kind)?.as_object());
        let up = nics.flat_map(|nics| nics.values()).filter(|nic| nic["Link Status"] == "up");
        let lists = up.flat_map(|nic| {
            ["NIC Names", "Overlay Nic Tags"].into_iter().filter_map(|list| nic[list].as_array())
        });
        lists.flatten().filter_map(Value::as_str).collect()
    }
}

impl Room {
    /// The fields that a record has of it.
    pub(super) fn fields(&self) -> Params {
        object(&json!({
            "overprovision_ratios": { "cpu": 4, "ram": 1, "disk": 1 },
            "unreserved_cpu": whole(self.cpu), "unreserved_ram": whole(self.ram),
            "unreserved_disk": whole(self.disk),
        }))
    }
}

/// The record that CNAPI makes when it is first started.
pub(super) fn default_record() -> Value {
    json!({
        "uuid": "default", "default_console": "serial", "serial": "ttyb", "boot_params": {},
        "kernel_flags": {}, "boot_modules": [], "boot_platform": "20200101T000000Z",
        "last_heartbeat": null, "status": "unknown", "score": 0,
    })
}

/// The status of a node that has no VMs and this much room.
pub(super) fn empty_status(sysinfo: &Params) -> Params {
    let ram = number(sysinfo.get("MiB of Memory")).unwrap_or(0.0) * MIB;
    let pool = number(sysinfo.get("Zpool Size in GiB")).unwrap_or(0.0) * 1024.0 * MIB;
    object(&json!({
        "vms": {},
        "meminfo": { "availrmem_bytes": whole(ram), "arcsize_bytes": 0, "total_bytes": whole(ram) },
        "diskinfo": { "pool_size_bytes": whole(pool), "pool_alloc_bytes": 0 },
    }))
}

/// An object, or an empty one.
pub(super) fn object(value: &Value) -> Params {
    value.as_object().cloned().unwrap_or_default()
}

/// A number, also one in a text.
pub(super) fn number(value: Option<&Value>) -> Option<f64> {
    let value = value?;
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

/// A number without a fraction, as JSON has it.
#[allow(clippy::cast_possible_truncation)] // sizes in bytes
fn whole(number: f64) -> Value {
    if number.fract() == 0.0 { json!(number as i64) } else { json!(number) }
}
