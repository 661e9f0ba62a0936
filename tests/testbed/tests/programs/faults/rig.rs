// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A vminfod process on a simulated node, started through a shell that limits it first, and the
//! cost of the process.

use std::path::PathBuf;
use std::time::Duration;

use sdc_clients::vminfod::Vminfod;
use serde_json::{Value, json};
use simnode::{CreateOptions, Node};
use testbed::lab::world::until;
use testbed::process::Child;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Longer than anything here takes that goes well on a busy machine.
pub const LATE: Duration = Duration::from_secs(120);

/// The daemon and its node.
pub struct Rig {
    pub node: Node,
    pub child: Child,
    pub port: u16,
    _dir: tempfile::TempDir,
}

impl Rig {
    /// Starts vminfod by `sh -c 'BEFORE; exec vminfod AFTER'` and waits until it answers.
    pub async fn start(vms: u32, before: &str, after: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = PathBuf::from(env!("CARGO_BIN_EXE_testbed"));
        let options = CreateOptions {
            vms,
            program: Some(program.clone()),
            ..CreateOptions::new(dir.path().join("cn"))
        };
        let node = Node::create(&options).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let mut config = node.vminfod_config_json(&format!("127.0.0.1:{port}"));
        let map = config.as_object_mut().unwrap();
        map.insert("sweep".to_owned(), json!("1s"));
        map.insert("log_level".to_owned(), json!("info"));
        let file = dir.path().join("vminfod.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let script = format!(
            "{before} exec {} @vminfod serve --config {} {after}",
            program.display(),
            file.display()
        );
        let mut child = Child::spawn("vminfod", "/bin/sh".as_ref(), &["-c", &script]).unwrap();
        let mut lines = child.take_lines();
        tokio::spawn(async move { while lines.recv().await.is_some() {} });
        let rig = Self { node, child, port, _dir: dir };
        rig.answers().await;
        rig
    }

    /// Waits until it answers.
    pub async fn answers(&self) {
        until("vminfod answers", LATE, || async { Ok(self.hub().ping().await.is_ok()) })
            .await
            .unwrap();
    }

    pub fn hub(&self) -> Vminfod {
        Vminfod::new(&format!("http://127.0.0.1:{}", self.port)).unwrap()
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()
    }

    /// Sends bytes, and reads what comes back until the daemon closes.
    pub async fn send(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        // It may well close before it has read everything.
        let _cut = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let reading = stream.read_to_end(&mut answer);
        let _cut = tokio::time::timeout(LATE, reading).await.expect("it closes");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Its VMs by state.
    pub async fn pick(&self, state: &str) -> String {
        let vms = self.hub().vms(true).await.unwrap().vms;
        let found = vms.iter().find(|vm| vm.get("state").and_then(Value::as_str) == Some(state));
        found.unwrap_or_else(|| panic!("no {state} VM"))["uuid"].as_str().unwrap().to_owned()
    }

    pub async fn state(&self, uuid: &str) -> String {
        let vm = self.hub().vm(uuid, false).await.unwrap();
        vm["state"].as_str().unwrap().to_owned()
    }

    pub fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Resident memory in MiB.
    pub fn rss(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    }

    /// Open file descriptors.
    pub fn fds(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// Its `sysevent` children that have not ended.
    pub fn children(&self) -> Vec<u32> {
        testbed::process::children_of(self.pid(), "sysevent")
    }
}

/// Sends a signal to a process that the rig's daemon started.
pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}
