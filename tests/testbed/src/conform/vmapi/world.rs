// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The surroundings of the recorded VMAPI, and what was done to them.

use std::collections::{BTreeMap, BTreeSet};

use mocks::vmapi::Store;
use serde_json::{Map, Value, json};

use crate::conform::transcript::{Asked, Exchange, Group, UnknownStep};

/// The VMs of group list-big.
const CROWD: usize = 1007;

/// Sets up the services that VMAPI asks.
pub(super) fn begin(store: &Store, world: &Value) {
    let mut peers = store.peers();
    // The recording's CNAPI was a stand-in that read no rules.
    peers.reads_affinity = false;
    peers.networks = world["networks"].as_object().map(|known| known.keys().cloned().collect());
    // What a VM got from the package of the recording.
    let package = json!({"cpu_cap": 100, "cpu_shares": 8, "max_lwps": 4000, "ram": 1024, "quota": 25,
        "max_physical_memory": 1024, "max_swap": 4096, "zfs_io_priority": 100});
    let name = world["package"].as_str().unwrap_or_default().to_owned();
    peers.packages = Some(BTreeMap::from([(name, object(&package))]));
}

/// Makes one change; returns the requests that belong to it.
pub(super) fn change(store: &Store, change: &Value, group: &Group) -> anyhow::Result<Vec<Asked>> {
    let word = change["do"].as_str().unwrap_or_default();
    let mut peers = store.peers();
    match (word, word.strip_prefix("PUT ")) {
        (_, Some(path)) => return Ok(vec![put(path, &change["body"])]),
        ("peer", _) => {
            for (name, value) in change["conf"].as_object().into_iter().flatten() {
                match name.as_str() {
                    "wf_up" => peers.workflow = value == true,
                    "cn_vm" => {
                        let copies = value.as_object().into_iter().flatten();
                        peers.copies =
                            copies.map(|(vm, copy)| (vm.clone(), answer(copy, 200))).collect();
                    }
                    "cn_alloc" => peers.refuses_allocation = value.get(0).map(|it| answer(it, 500)),
                    "wf_job" => peers.refuses_jobs = value.get(0).map(|it| answer(it, 500)),
                    // The recorded calls have these answers.
                    "img_status" | "images" | "papi_status" | "napi_status" | "cn_migrate"
                    | "cn_delete" => {}
                    _ => return Err(UnknownStep(change.clone()).into()),
                }
            }
        }
        ("moray", _) => peers.storage = change["state"] == "started",
        _ if word.starts_with("1007 running VMs") => {
            drop(peers);
            crowd(group).into_iter().for_each(|vm| store.put(vm));
        }
        _ => return Err(UnknownStep(change.clone()).into()),
    }
    Ok(Vec::new())
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn answer(recorded: &Value, usual: u16) -> (u16, Value) {
    let status = recorded["status"].as_u64().and_then(|status| u16::try_from(status).ok());
    (status.unwrap_or(usual), recorded["body"].clone())
}

fn put(path: &str, body: &Value) -> Asked {
    let headers = [("content-type".to_owned(), "application/json".to_owned())];
    Asked {
        method: "PUT".to_owned(),
        path: path.to_owned(),
        headers: headers.into_iter().collect(),
        body: Some(body.clone()),
        ..Asked::default()
    }
}

/// The VMs of group list-big, of which the recording has only what the answers show: 1,007 running VMs
/// with aliases b0000 to b1006 on one server. Those that no answer shows get uuids that are in none of
/// the gaps between shown ones.
fn crowd(group: &Group) -> Vec<Map<String, Value>> {
    let shown = |exchange: &Exchange, name: &str| -> Vec<String> {
        let vms = exchange.response.body.as_ref().and_then(Value::as_array);
        let texts = vms.into_iter().flatten().filter_map(|vm| vm[name].as_str());
        texts.map(str::to_owned).collect()
    };
    let by = |query: &str| group.exchanges().find(|one| one.request.query.contains(query));
    // From the greatest alias on, and from the newest VM on.
    let last = by("sort=alias.desc").map(|one| shown(one, "uuid")).unwrap_or_default();
    let newest =
        by("sort=create_timestamp.DESC").map(|one| shown(one, "alias")).unwrap_or_default();
    let server = group
        .exchanges()
        .find_map(|one| one.request.query.strip_prefix("server_uuid=")?.split('&').next());
    let mut others: BTreeSet<String> = group
        .exchanges()
        .flat_map(|one| shown(one, "uuid").into_iter().chain(marked(one)))
        .collect();
    others.retain(|uuid| !last.contains(uuid));
    let mut others = others.into_iter();
    let vms = (0..CROWD).map(|n| {
        let alias = format!("b{n:04}");
        let made = format!("60000000-0000-4000-8000-{n:012}");
        let uuid = last.get(CROWD - 1 - n).cloned().or_else(|| others.next()).unwrap_or(made);
        let age = newest.iter().position(|newer| *newer == alias).unwrap_or(newest.len());
        let made = format!("2026-01-01T00:00:{:02}.000Z", newest.len() - age);
        object(&json!({"uuid": uuid, "alias": alias, "state": "running", "server_uuid": server,
            "create_timestamp": made}))
    });
    vms.collect()
}

/// The uuid in the marker of a request.
fn marked(exchange: &Exchange) -> Option<String> {
    let marker = exchange.request.query.split("marker=").nth(1)?.split('&').next()?;
    let (_, rest) = marker.split_once("%22uuid%22%3A%20%22")?;
    rest.get(..36).map(str::to_owned)
}
