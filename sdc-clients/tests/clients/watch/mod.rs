// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The watcher: what it says about a stream, and about the time without one. Here is
//! how streams are made and events are named; the tests are beside.

mod follow;
mod resume;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use sdc_clients::http::StreamResponse;
use sdc_clients::vminfod::{Filter, Vminfod, WatchEvent, Watcher, watch_filtered};
use sdc_clients::{Error, Jitter};
use serde_json::{Value, json};

use crate::script::Script;

fn vm(name: &str, ram: u32) -> Value {
    json!({ "zonename": name, "uuid": name, "ram": ram })
}

fn line(value: Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}

fn ready(vms: &[Value]) -> Bytes {
    line(json!({ "type": "ready", "date": "d", "uuid": "l", "vms": Value::from(vms).to_string() }))
}

fn create(vm: Value) -> Bytes {
    line(json!({ "type": "create", "date": "d", "zonename": vm["zonename"], "vm": vm }))
}

fn modify(vm: Value) -> Bytes {
    let change = json!({ "prettyPath": "ram", "path": ["ram"], "action": "changed", "oldValue": 1, "newValue": 2 });
    line(
        json!({ "type": "modify", "date": "d", "zonename": vm["zonename"], "vm": vm, "changes": [change] }),
    )
}

fn delete(name: &str) -> Bytes {
    line(json!({ "type": "delete", "date": "d", "zonename": name, "uuid": name }))
}

/// A snapshot of a service that counts its events.
fn counted(vms: &[Value], seq: u64, epoch: &str) -> Bytes {
    let vms = Value::from(vms).to_string();
    line(
        json!({ "type": "ready", "date": "d", "uuid": "l", "vms": vms, "seq": seq, "epoch": epoch }),
    )
}

fn resume(seq: u64, newest: u64, epoch: &str) -> Bytes {
    line(json!({ "type": "resume", "date": "d", "epoch": epoch, "seq": seq, "newest": newest }))
}

/// The same event under a number.
fn numbered(line: Bytes, seq: u64) -> Bytes {
    let mut value: Value = serde_json::from_slice(&line).unwrap();
    value["seq"] = seq.into();
    self::line(value)
}

/// What one connection gives before it ends; an open one stays silent instead.
#[derive(Clone)]
struct Connection {
    pieces: Vec<Bytes>,
    open: bool,
}

fn ends(pieces: Vec<Bytes>) -> Option<Connection> {
    Some(Connection { pieces, open: false })
}

fn stays(pieces: Vec<Bytes>) -> Option<Connection> {
    Some(Connection { pieces, open: true })
}

/// A watcher of a service that serves these connections in turn (`None`
/// refuses), and then refuses for ever.
fn watched(connections: Vec<Option<Connection>>) -> (Watcher, Arc<Script>) {
    watched_through(Filter::default(), connections)
}

/// The same through a filter.
fn watched_through(filter: Filter, connections: Vec<Option<Connection>>) -> (Watcher, Arc<Script>) {
    let queue = Mutex::new(VecDeque::from(connections));
    let script = Script::streaming(move |request| {
        let next = queue.lock().unwrap().pop_front().flatten();
        let Some(connection) = next else {
            return Err(Error::connect(&request.method, request.target(), "refused"));
        };
        let pieces = stream::iter(connection.pieces.into_iter().map(Ok));
        let body =
            if connection.open { pieces.chain(stream::pending()).boxed() } else { pieces.boxed() };
        let status = 200u16.try_into().unwrap();
        Ok(StreamResponse { status, headers: Default::default(), body })
    });
    (watch_filtered(&Vminfod::with_http(script.http()), filter, Jitter::from_seed(7)), script)
}

/// An event in one short word per VM.
fn say(event: WatchEvent) -> String {
    let name = |vm: &serde_json::Map<String, Value>| {
        format!("{}/{}", vm["zonename"].as_str().unwrap(), vm.get("ram").unwrap_or(&Value::Null))
    };
    match event {
        WatchEvent::Synced(vms) => {
            let names: Vec<String> = vms.iter().map(|vm| name(vm)).collect();
            format!("synced {}", names.join(" "))
        }
        WatchEvent::Created(vm) => format!("created {}", name(&vm)),
        WatchEvent::Modified { vm, old, changes, .. } => {
            format!("modified {} from {} with {}", name(&vm), name(&old), changes.len())
        }
        WatchEvent::Deleted(vm) => format!("deleted {}", name(&vm)),
        WatchEvent::Hidden(vm) => format!("hidden {}", name(&vm)),
        WatchEvent::Shown(vm) => format!("shown {}", name(&vm)),
        WatchEvent::Lost(error) => format!("lost {}", error.class().as_str()),
        other => format!("{other:?}"),
    }
}

async fn says(watcher: &mut Watcher, count: usize) -> Vec<String> {
    let mut said = Vec::new();
    for _ in 0..count {
        said.push(say(watcher.next().await));
    }
    said
}
