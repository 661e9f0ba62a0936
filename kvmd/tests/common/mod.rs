// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node for one test: directories, a daemon in process, and waits for its events.
#![allow(dead_code, clippy::unwrap_used)] // Each test program uses its part and may stop at once.

pub use simnode::qemu;

use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use daemon::journal::Read;
use daemon::{Fields, Shutdown};
use kvmd::config::Config;
use kvmd::service::{Running, ServeError, serve};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Nothing here takes longer on a healthy machine, however busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// The node.
pub struct Node {
    /// Everything is in here.
    pub dir: TempDir,
    /// What differs from the defaults.
    pub settings: Value,
    running: Option<Running>,
    shutdown: Shutdown,
    cursor: u64,
}

impl Node {
    /// A node whose daemon has opened all that it opens once: it has seen a whole life.
    pub async fn settled() -> Self {
        let mut node = Self::running().await;
        let qemu = qemu::Qemu::start(&node.socket("first")).unwrap();
        node.watching("first").await;
        qemu.kill().await;
        node.verdict("first").await;
        node
    }

    /// A node whose daemon is off; the control directory is there.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let node =
            Self { dir, settings: json!({}), running: None, shutdown: Shutdown::new(), cursor: 0 };
        std::fs::create_dir_all(node.control()).unwrap();
        node
    }

    /// The same with its daemon running.
    pub async fn running() -> Self {
        let mut node = Self::new();
        node.start().await;
        node
    }

    /// The control directory.
    pub fn control(&self) -> PathBuf {
        self.dir.path().join("run/ganeti/kvm-hypervisor/ctrl")
    }

    /// The run directory.
    pub fn run_dir(&self) -> PathBuf {
        self.dir.path().join("kvmd")
    }

    /// An instance's socket.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.control().join(format!("{name}.kvmd"))
    }

    /// An instance's marker.
    pub fn marker(&self, name: &str) -> PathBuf {
        self.control().join(format!("{name}.shutdown"))
    }

    /// Returns true if it is marked as turned off by its user.
    pub fn is_marked(&self, name: &str) -> bool {
        std::fs::symlink_metadata(self.marker(name)).is_ok()
    }

    /// The configuration file's text.
    pub fn config_text(&self) -> String {
        let mut config = json!({
            "enabled": true,
            "listen": "127.0.0.1:0",
            "run_dir": self.run_dir(),
            "control": {"enabled": true, "dir": self.control()},
            "vminfod": {"enabled": false},
        });
        merge(&mut config, &self.settings);
        config.to_string()
    }

    /// Starts the daemon.
    pub async fn start(&mut self) {
        self.try_start().await.unwrap();
    }

    /// Starts the daemon, or says why not.
    pub async fn try_start(&mut self) -> Result<(), ServeError> {
        let fields = Fields::from_json(&self.config_text()).unwrap();
        let config = Config::read(fields).unwrap().0;
        self.shutdown = Shutdown::new();
        self.cursor = 0;
        let root = self.dir.path().to_owned();
        self.running = Some(serve(config, root, self.shutdown.clone()).await?);
        Ok(())
    }

    /// Stops the daemon in order.
    pub async fn stop(&mut self) {
        self.shutdown.trigger();
        if let Some(running) = self.running.take() {
            assert!(running.ended().await, "tasks did not end");
        }
    }

    /// Waits until the daemon has stopped by itself.
    pub async fn ended(&mut self) {
        let running = self.running.take().unwrap();
        assert!(tokio::time::timeout(PATIENCE, running.ended()).await.expect("it goes on"));
    }

    fn daemon(&self) -> &Running {
        self.running.as_ref().expect("the daemon is off")
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://{}", self.daemon().address)
    }

    /// What it knows.
    pub fn ledger(&self) -> &kvmd::ledger::Ledger {
        &self.daemon().ledger
    }

    /// Waits until `fits` says so; looks again with every event, and now and then without one.
    pub async fn until(&self, what: &str, mut fits: impl FnMut() -> bool) {
        let mut newest = self.ledger().journal.subscribe();
        let wait = async {
            while !fits() {
                let _again =
                    tokio::time::timeout(Duration::from_millis(10), newest.changed()).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "never: {what}");
    }

    /// Waits until this other client was greeted, so that it holds the monitor.
    pub async fn until_greeted(&self, client: &tokio::net::UnixStream) {
        tokio::time::timeout(PATIENCE, client.readable()).await.expect("no greeting").unwrap();
    }

    /// Waits until an instance is in this state.
    pub async fn state(&self, name: &str, state: kvmd::ledger::State) {
        let is =
            || self.ledger().snapshot().instances.get(name).is_some_and(|it| it.state == state);
        self.until(&format!("{name} is {state:?}"), is).await;
    }

    /// Waits until an instance's events come.
    pub async fn watching(&self, name: &str) {
        self.state(name, kvmd::ledger::State::Watching).await;
    }

    /// Waits until the saved history of an instance contains `word`.
    pub async fn heard(&self, name: &str, word: &str) {
        let file = self.run_dir().join("histories").join(format!("{name}.json"));
        let holds = || std::fs::read_to_string(&file).is_ok_and(|text| text.contains(word));
        self.until(&format!("{word} of {name} was heard"), holds).await;
    }

    /// The next verdict on an instance; each is given once.
    pub async fn verdict(&mut self, name: &str) -> Value {
        let mut cursor = self.cursor;
        let mut found = None;
        let journal = std::sync::Arc::clone(&self.ledger().journal);
        self.until(&format!("a verdict on {name}"), || {
            if let Read::Lines { lines, .. } = journal.read(cursor, usize::MAX) {
                for line in lines {
                    cursor += 1;
                    let event: Value = serde_json::from_slice(&line).unwrap();
                    if event["type"] == "verdict" && event["name"] == name {
                        found = Some(event);
                        break;
                    }
                }
            }
            found.is_some()
        })
        .await;
        self.cursor = cursor;
        found.unwrap()
    }

    /// All verdicts so far, of any instance.
    pub fn verdicts(&self) -> u64 {
        self.ledger().snapshot().counts.verdicts
    }

    /// Runs the program itself.
    pub async fn kvmd(&self, args: &[&str]) -> Output {
        #[allow(clippy::disallowed_methods)] // The program under test.
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_kvmd"));
        let output = command.args(args).kill_on_drop(true).output();
        tokio::time::timeout(PATIENCE, output).await.expect("kvmd does not end").unwrap()
    }

    /// The configuration as a file, for the program.
    pub fn config_file(&self) -> String {
        let path = self.dir.path().join("kvmd.json");
        std::fs::write(&path, self.config_text()).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shutdown.trigger();
    }
}

/// `initiator/kind`.
pub fn said(verdict: &Value) -> String {
    let word = |key: &str| verdict[key].as_str().unwrap_or("-").to_owned();
    format!("{}/{}", word("initiator"), word("kind"))
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// How many descriptors (`fd`) or threads (`task`) this process has.
pub fn count(what: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count()
}
