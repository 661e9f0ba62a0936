// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the answers of a run show of the records of a service: so they are before the run, and where a later answer
//! shows another record, so they are before that answer.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use mocks::cnapi::TaskError;
use mocks::faults;
use mocks::napi::SeedFile;
use mocks::{cnapi, imgapi, napi, papi, vmapi};
use serde_json::{Map, Value, json};

use crate::conform::services::replay::Memory;
use crate::conform::transcript::{Exchange, Group};

type Record = Map<String, Value>;

/// What a node answers next.
pub(super) type Next = Arc<Mutex<Result<Value, TaskError>>>;

/// The mock of a service.
pub(super) enum Mock {
    Cnapi(cnapi::Server, Next),
    Imgapi(imgapi::Server),
    Napi(napi::Server),
    Papi(papi::Server),
    Vmapi(vmapi::Server),
}

fn object(value: &Value) -> Record {
    value.as_object().cloned().unwrap_or_default()
}

/// The records in the answer of a GET that was answered with 200.
fn read(one: &Exchange) -> Vec<&Value> {
    if one.request.method != "GET" || one.response.status != Some(200) {
        return Vec::new();
    }
    match one.response.body.as_ref() {
        Some(Value::Array(all)) => all.iter().collect(),
        Some(record @ Value::Object(_)) => vec![record],
        _ => Vec::new(),
    }
}

fn segments(one: &Exchange) -> Vec<&str> {
    one.request.path.trim_matches('/').split('/').collect()
}

/// Sends a request of another client; whether it was taken shows in the answers that follow.
fn send(mock: &dyn faults::Mock, method: &str, path: &str, body: &Value) {
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json");
    if let Ok(request) = request.body(body.to_string().into()) {
        drop(mock.handle(request).now_or_never());
    }
}

/// Fills a mock with what a run shows first of each record; returns the nodes.
pub(super) fn begin(mock: &Mock, group: &Group) -> anyhow::Result<Vec<String>> {
    let mut nodes: Vec<String> = Vec::new();
    match mock {
        Mock::Cnapi(server, _) => {
            let of_servers = |one: &&Exchange| one.request.path.starts_with("/servers");
            let all = || group.exchanges().filter(of_servers);
            // What a list shows of a node is less.
            for is_whole in [true, false] {
                let shown = all().filter(|one| segments(one).len() == 1 + usize::from(is_whole));
                for node in shown.flat_map(read) {
                    let uuid = node["uuid"].as_str().unwrap_or_default().to_owned();
                    if !nodes.contains(&uuid) {
                        put_node(server.store(), &uuid, node);
                        nodes.push(uuid);
                    }
                }
            }
        }
        Mock::Imgapi(server) => {
            group.exchanges().flat_map(read).for_each(|it| server.store().put(object(it)));
        }
        Mock::Papi(server) => {
            group.exchanges().flat_map(read).for_each(|it| server.store().put(object(it)));
        }
        Mock::Napi(server) => {
            let seed = seed(group);
            server.store().seed(&seed).map_err(|why| anyhow::anyhow!(why))?;
        }
        Mock::Vmapi(_) => {}
    }
    Ok(nodes)
}

fn put_node(store: &cnapi::Store, uuid: &str, shown: &Value) {
    let is_told = |name: &str| {
        let begins = ["memory_", "disk_", "unreserved_"];
        let others = [
            "agents",
            "vms",
            "last_heartbeat",
            "score",
            "overprovision_ratios",
            "status",
            "sysinfo",
        ];
        begins.iter().any(|begin| name.starts_with(begin)) || others.contains(&name)
    };
    let mut fields = object(shown);
    fields.retain(|name, _| !is_told(name));
    store.put_server(fields);
    if shown["sysinfo"].is_object() {
        let sysinfo = json!({ "sysinfo": shown["sysinfo"] });
        send(store, "POST", &format!("/servers/{uuid}/sysinfo"), &sysinfo);
        report(store, uuid, shown);
    }
}

/// What a node's agent reports every few seconds.
fn report(store: &cnapi::Store, uuid: &str, shown: &Value) {
    let disk = object(shown).into_iter();
    let disk: Record = disk
        .filter_map(|(name, value)| Some((name.strip_prefix("disk_")?.to_owned(), value)))
        .collect();
    let status = json!({
        "vms": shown["vms"],
        "meminfo": {
            "availrmem_bytes": shown["memory_available_bytes"],
            "arcsize_bytes": shown["memory_arc_bytes"],
            "total_bytes": shown["memory_total_bytes"],
        },
        "diskinfo": disk,
    });
    send(store, "POST", &format!("/servers/{uuid}/events/status"), &status);
}

/// The NICs of a run, and the networks: of those that no answer shows what their NICs do.
fn seed(group: &Group) -> SeedFile {
    let (mut networks, mut nics): (Vec<Record>, Vec<Record>) = (Vec::new(), Vec::new());
    let add = |list: &mut Vec<Record>, key: &str, record: &Value| {
        if !list.iter().any(|known| known.get(key) == record.get(key)) {
            list.push(object(record));
        }
    };
    for one in group.exchanges() {
        for record in read(one) {
            match segments(one)[..] {
                ["networks", _] => add(&mut networks, "uuid", &of_fabric(record)),
                ["nics", ..] => add(&mut nics, "mac", record),
                _ => {}
            }
        }
    }
    for nic in &nics {
        let text = |name: &str| nic.get(name).and_then(Value::as_str).unwrap_or_default();
        let octets: Vec<&str> = text("ip").split('.').collect();
        if let [a, b, _, _] = octets[..] {
            let network = json!({
                "uuid": text("network_uuid"), "name": text("network_uuid"), "nic_tag": text("nic_tag"),
                "vlan_id": nic.get("vlan_id"), "subnet": format!("{a}.{b}.0.0/16"), "mtu": 1500,
                "provision_start_ip": format!("{a}.{b}.0.1"), "provision_end_ip": format!("{a}.{b}.255.254"),
                "resolvers": nic.get("resolvers"), "gateway": nic.get("gateway"),
            });
            add(&mut networks, "uuid", &network);
        }
    }
    let mut tags: Vec<&str> = Vec::new();
    for record in networks.iter().chain(&nics) {
        let tag = record.get("nic_tag").and_then(Value::as_str).unwrap_or_default();
        let tag = tag.split('/').next().unwrap_or_default();
        if !tag.is_empty() && !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    let nic_tags = tags.iter().map(|tag| object(&json!({ "name": tag }))).collect();
    SeedFile { nic_tags, networks, network_pools: Vec::new(), nics }
}

/// A network of a fabric as a seed has it.
fn of_fabric(network: &Value) -> Value {
    let mut given = network.clone();
    if let (Some(tag), Some(vnet)) = (network["nic_tag"].as_str(), network["vnet_id"].as_u64()) {
        given["nic_tag"] = json!(format!("{tag}/{vnet}"));
    }
    given
}

/// Nodes, what their agents answer, and tasks.
pub(super) fn of_cnapi(
    store: &cnapi::Store,
    next: &Next,
    nodes: &[String],
    one: &Exchange,
    memory: &Memory,
) {
    let body = one.response.body.as_ref().unwrap_or(&Value::Null);
    if store.deaths() > 0 && one.response.status.is_some() {
        store.restart();
    }
    nodes.iter().for_each(|uuid| store.beat(uuid));
    match (one.request.method.as_str(), &segments(one)[..]) {
        ("GET", ["servers", uuid]) if body.is_object() => report(store, uuid, body),
        ("GET", ["servers", _, "vms", _]) => {
            let message = body["message"].as_str().unwrap_or_default();
            let text = message.trim_start_matches("posting task to cn-agent: ");
            let answer = match one.response.status {
                Some(200) => Ok(body.clone()),
                Some(404) => Err(TaskError::no_vm("there is none")),
                _ => Err(TaskError::from(text)),
            };
            *next.lock().unwrap_or_else(PoisonError::into_inner) = answer;
        }
        ("GET", ["tasks", id, "wait"]) if body.is_object() => {
            let ours = serde_json::from_str(&memory.ours(&body.to_string())).unwrap_or_default();
            store.replace_task(&memory.ours(id), object(&ours));
        }
        _ => {}
    }
}

/// NICs, and who has an address.
pub(super) fn of_napi(store: &napi::Store, one: &Exchange) {
    let body = one.response.body.as_ref().unwrap_or(&Value::Null);
    let (is_get, status) = (one.request.method == "GET", one.response.status);
    match segments(one)[..] {
        ["nics", mac] if is_get && status == Some(404) => drop(store.remove(mac)),
        ["nics", mac] if is_get && status == Some(200) => {
            let mut nic = object(body);
            nic.retain(|name, _| ["cn_uuid", "state", "owner_uuid"].contains(&name.as_str()));
            // One that is not there was seeded from this answer.
            drop(store.change_nic(mac, &nic));
        }
        ["networks", _, "ips", _] if body["belongs_to_uuid"].is_string() => {
            let mut shown = object(body);
            let holder = ["belongs_to_type", "belongs_to_uuid", "owner_uuid", "reserved"];
            shown.retain(|name, _| holder.contains(&name.as_str()));
            send(store, "PUT", &one.request.path, &Value::Object(shown));
        }
        _ => {}
    }
}

/// A VM's record, and whether the storage is there.
pub(super) fn of_vmapi(store: &vmapi::Store, one: &Exchange) {
    let status = one.response.status;
    store.peers().storage = status.is_none_or(|status| status < 500);
    if let ("GET", ["vms", uuid]) = (one.request.method.as_str(), &segments(one)[..]) {
        store.remove(uuid);
        read(one).into_iter().for_each(|vm| store.put(object(vm)));
    }
}
