// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node in process: files in a directory of its own, and commands that answer from memory.

#![allow(dead_code, unused_imports, clippy::unwrap_used)] // each test program uses its part and may stop at once

mod commands;
pub mod scene;
mod served;
pub mod world;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use daemon::Shutdown;
use daemon::command::{Commands, Program};
use sdc_clients::Jitter;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::sync::Notify;
use vminfod::config::Config;

use scene::{attr, config_of};

pub use scene::{A, B};
pub use served::{Events, Served};

/// What the commands answer from.
#[derive(Default)]
pub struct State {
    /// Lines of `zoneadm list -pc`.
    pub zoneadm: Vec<String>,
    /// Rows of `zfs list`.
    pub zfs: Vec<Map<String, Value>>,
    pub zoneinfo: Vec<Value>,
    /// The far ends of the event streams: zones, zfs.
    pub streams: HashMap<&'static str, DuplexStream>,
    /// Tools that fail, with the complaint.
    pub failing: HashMap<&'static str, String>,
    /// Tools that never answer.
    pub hanging: Vec<&'static str>,
    /// Tools that never answer when an argument contains this text.
    pub hanging_on: Vec<(&'static str, String)>,
    /// Tools that answer only when they are [`FakeNode::release`]d.
    pub held: Vec<&'static str>,
    /// The file watcher reports nothing.
    pub is_deaf: bool,
    /// Every command run.
    pub log: Vec<(Program, Vec<String>)>,
}

/// The node.
#[derive(Clone)]
pub struct FakeNode {
    dir: Arc<tempfile::TempDir>,
    state: Arc<Mutex<State>>,
    released: Arc<Notify>,
}

impl FakeNode {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for sub in ["etc/zones", "tmp", "zones"] {
            std::fs::create_dir_all(dir.path().join(sub)).unwrap();
        }
        let node = Self { dir: Arc::new(dir), state: Arc::default(), released: Arc::default() };
        node.write(
            "/tmp/.sysinfo.json",
            r#"{"UUID":"564d2f1c-0a70-4a2b-9a7e-7b1c0f3c2a11","Datacenter Name":"sim"}"#,
        );
        node.index(&[]);
        node.with(|state| state.zoneadm.push("0:global:running:/::ipkg:shared:0".to_owned()));
        node
    }

    pub fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        work(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    /// Temp file, then rename over.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let temp = path.with_extension("tmp-write");
        std::fs::write(&temp, text).unwrap();
        std::fs::rename(&temp, &path).unwrap();
    }

    /// A zone with everything a small VM has.
    pub fn add_zone(&self, uuid: &str, state: &str, zoneid: Option<i64>, alias: &str) {
        self.write(&format!("/etc/zones/{uuid}.xml"), &xml(uuid, alias));
        for name in ["metadata", "tags", "routes"] {
            self.write(&format!("/zones/{uuid}/config/{name}.json"), "{}");
        }
        self.set_zone(uuid, state, zoneid);
        let columns = json!({"quota": "10737418240", "mountpoint": format!("/zones/{uuid}")});
        self.set_dataset(&format!("zones/{uuid}"), columns);
    }

    pub fn set_zone(&self, uuid: &str, state: &str, zoneid: Option<i64>) {
        let id = zoneid.map_or("-".to_owned(), |id| id.to_string());
        self.set_line(format!("{id}:{uuid}:{state}:/zones/{uuid}:{uuid}:joyent:excl:6"));
    }

    /// A line of zoneadm, in place of the one for the same zone.
    pub fn set_line(&self, line: String) {
        let name = |line: &str| line.split(':').nth(1).map(str::to_owned);
        self.with(|node| match node.zoneadm.iter_mut().find(|old| name(old) == name(&line)) {
            Some(old) => *old = line,
            None => node.zoneadm.push(line),
        });
    }

    pub fn drop_zone(&self, uuid: &str) {
        self.with(|node| node.zoneadm.retain(|line| line.split(':').nth(1) != Some(uuid)));
    }

    /// A dataset with these columns, or others of the one that is there.
    pub fn set_dataset(&self, name: &str, columns: Value) {
        self.with(|node| {
            let at = node.zfs.iter().position(|row| row["name"] == name).unwrap_or_else(|| {
                let row = json!({"name": name, "type": "filesystem", "creation": "1767261600",
                    "recsize": "131072", "compression": "off"});
                node.zfs.push(row.as_object().unwrap().clone());
                node.zfs.len() - 1
            });
            node.zfs[at].extend(columns.as_object().unwrap().clone());
        });
    }

    /// Sends one line on `zones` or `zfs`.
    pub async fn sysevent(&self, stream: &'static str, event: &Value) {
        self.raw(stream, line_of(event).as_bytes()).await;
    }

    pub async fn raw(&self, stream: &'static str, bytes: &[u8]) {
        let mut pipe =
            self.with(|state| state.streams.remove(stream)).expect("no such stream is followed");
        let _it_may_be_closed = pipe.write_all(bytes).await;
        self.with(|state| {
            state.streams.entry(stream).or_insert(pipe);
        });
    }

    pub async fn zone_event(&self, zone: &str, newstate: &str, zoneid: i64) {
        self.sysevent("zones", &zone_status(zone, newstate, zoneid)).await;
    }

    pub async fn zfs_event(&self, dataset: &str, action: &str) {
        self.sysevent("zfs", &zfs_history(dataset, action, "")).await;
    }

    pub fn config(&self) -> Config {
        Config {
            root: self.dir.path().to_owned(),
            listen: "127.0.0.1:0".parse().unwrap(),
            ..Config::default()
        }
    }

    pub async fn serve(&self) -> Served {
        self.serve_as(self.config()).await
    }

    pub async fn serve_as(&self, config: Config) -> Served {
        self.serve_through(config, Arc::new(self.clone())).await
    }

    /// A daemon that runs these commands, perhaps a decorated node.
    pub async fn serve_through(&self, config: Config, commands: Arc<dyn Commands>) -> Served {
        let (shutdown, jitter) = (Shutdown::new(), Jitter::from_seed(7));
        let running = vminfod::serve_with(config, commands, jitter, shutdown.clone());
        let running = running.await.unwrap();
        let address = running.address;
        Served { url: format!("http://{address}"), address, shutdown, running: Some(running) }
    }

    /// The error of a daemon that cannot start.
    pub async fn refused(&self, config: Config) -> String {
        let refused = vminfod::serve(config, Arc::new(self.clone()), Shutdown::new()).await;
        refused.unwrap_err().to_string()
    }

    /// Lets every held tool answer.
    pub fn release(&self) {
        self.with(|state| state.held.clear());
        self.released.notify_waiters();
    }

    /// A daemon that hears of no file's change.
    pub async fn serve_deaf(&self, config: Config) -> Served {
        self.with(|state| state.is_deaf = true);
        self.serve_as(config).await
    }
}

/// The configuration of a small VM.
pub fn xml(uuid: &str, alias: &str) -> String {
    let alias = STANDARD.encode(alias);
    let attrs =
        [("vm-version", "1"), ("create-timestamp", "2026-01-01T10:00:00.000Z"), ("alias", &alias)];
    config_of(uuid, "joyent", &attrs.map(|(name, value)| attr(name, value)).concat())
}

/// A zone sysevent.
pub fn zone_status(zone: &str, newstate: &str, zoneid: i64) -> Value {
    let data = json!({"zonename": zone, "newstate": newstate, "zoneid": zoneid});
    json!({"class": "status", "subclass": "change", "data": data})
}

/// A ZFS sysevent.
pub fn zfs_history(dataset: &str, action: &str, text: &str) -> Value {
    let data = json!({"history_dsname": dataset, "history_internal_name": action, "history_internal_str": text});
    json!({"class": "EC_zfs", "subclass": "ESC_ZFS_history_event", "data": data})
}

/// The line that `sysevent` prints for it.
pub fn line_of(event: &Value) -> String {
    let mut line = json!({"date": "2026-01-05T10:00:00.000Z", "type": "event"});
    for (key, value) in event.as_object().unwrap() {
        line[key] = value.clone();
    }
    format!("{line}\n")
}
