// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed shadow`: two real daemons, and what it prints of their VMs.

use std::process::Stdio;
use std::time::Duration;

use sdc_clients::vminfod::Vminfod;
use serde_json::json;
use simnode::{Node, Verbs, Wait};
use testbed::process::Child;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::common::{LATE, node, program, said};

async fn start(node: &Node) -> (Child, String) {
    let mut config = node.vminfod_config_json("127.0.0.1:0");
    config["sweep"] = json!("200ms");
    let file = node.dir().join("vminfod.json");
    std::fs::write(&file, config.to_string()).unwrap();
    let args = ["@vminfod", "serve", "--config", file.to_str().unwrap()];
    let mut child = Child::spawn("vminfod", &program(), &args).unwrap();
    let address = said(&mut child, "listening").await["address"].clone();
    (child, format!("http://{}", address.as_str().unwrap()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shadow_tells_what_lasts_and_when_it_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (node(&dir.path().join("a"), 4), node(&dir.path().join("b"), 4));
    let (place, there) = start(&first).await;
    let (ours, here) = start(&second).await;
    #[allow(clippy::disallowed_methods)] // The program under test.
    let mut shadow = tokio::process::Command::new(program())
        .args(["shadow", &here, &there, "--every", "200ms"])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(shadow.stdout.take().unwrap()).lines();
    let mut printed = async |start: &str| -> String {
        loop {
            let line = tokio::time::timeout(LATE, lines.next_line()).await.expect("in time");
            let line = line.unwrap().expect("it runs");
            if line.starts_with(start) {
                return line;
            }
        }
    };
    assert_eq!(printed("compared").await, "compared: 0 differences");

    let vms = Vminfod::new(&there, "test/1").unwrap().vms(false).await.unwrap().vms;
    let vm = vms.iter().find(|vm| vm["brand"] != "bhyve" && vm.contains_key("quota")).unwrap();
    let vm = vm["zonename"].as_str().unwrap().to_owned();
    Verbs::new(&first, Wait::none()).set_quota(&vm, 77).await.unwrap();
    let line = printed("differs").await;
    assert!(line.starts_with(&format!("differs: {vm} quota: here ")), "{line}");
    assert!(line.ends_with(", there 77"), "{line}");

    Verbs::new(&second, Wait::none()).set_quota(&vm, 77).await.unwrap();
    assert_eq!(printed("no longer").await, format!("no longer differs: {vm} quota"));

    place.stop(Duration::ZERO).await.unwrap();
    printed("cannot compare").await;
    drop(ours);
}
