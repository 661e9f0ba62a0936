// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A vminfod process on a simulated node, started through a shell that limits it first, and the
//! cost of the process.

use rig::port::Port;
use sdc_clients::vminfod::Vminfod;
use serde_json::{Value, json};
use simnode::Node;
use testbed::held::{Held, children_of, held};
use testbed::process::Child;
use tokio::net::TcpStream;

use super::super::common::{node, program, text, until};

/// The daemon and its node.
pub struct Rig {
    pub node: Node,
    pub child: Child,
    port: Port,
    _dir: tempfile::TempDir,
}

impl Rig {
    /// Starts vminfod by `sh -c 'BEFORE; exec vminfod AFTER'` and waits until it answers.
    pub async fn start(vms: u32, before: &str, after: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let node = node(dir.path(), vms);
        let port = Port::local().unwrap();
        let mut config = node.vminfod_config_json(&port.address().to_string());
        (config["sweep"], config["log_level"]) = (json!("1s"), json!("info"));
        let (file, program) = (dir.path().join("vminfod.json"), program());
        std::fs::write(&file, config.to_string()).unwrap();
        let (program, file) = (program.display(), file.display());
        let script = format!("{before} exec {program} @vminfod serve --config {file} {after}");
        let mut child = Child::spawn("vminfod", "/bin/sh".as_ref(), &["-c", &script]).unwrap();
        child.ignore();
        let rig = Self { node, child, port, _dir: dir };
        rig.answers().await;
        rig
    }

    /// Waits until it answers.
    pub async fn answers(&self) {
        until("vminfod answers", async || self.hub().ping().await.is_ok()).await;
    }

    pub fn url(&self) -> String {
        self.port.url()
    }

    pub fn hub(&self) -> Vminfod {
        Vminfod::new(&self.url(), "test/1").unwrap()
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.port.address()).await.unwrap()
    }

    /// A VM in this state.
    pub async fn pick(&self, state: &str) -> String {
        let vms = self.hub().vms(true).await.unwrap().vms;
        let found = vms.iter().find(|vm| text(vm, "state") == state);
        text(found.unwrap_or_else(|| panic!("no {state} VM")), "uuid").to_owned()
    }

    /// Waits until a VM's field is shown so.
    pub async fn shows(&self, uuid: &str, field: &str, value: &str) {
        let value = Value::from(value);
        until(&format!("{field} is {value}"), async || {
            self.hub().vm(uuid, false).await.is_ok_and(|vm| vm.get(field) == Some(&value))
        })
        .await;
    }

    /// What it holds.
    pub fn held(&self) -> Held {
        held(self.child.id().expect("it runs")).unwrap()
    }

    /// Its `sysevent` children that have not ended.
    pub fn children(&self) -> Vec<u32> {
        children_of(self.child.id().expect("it runs"), "sysevent")
    }
}
