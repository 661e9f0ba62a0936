// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `vminfod serve --shadow`: two real daemons, and what the second one says of the first.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sdc_clients::vminfod::Vminfod;
use serde_json::{Value, json};
use simnode::{CreateOptions, Node, Verbs, Wait};
use testbed::process::Child;

const LATE: Duration = Duration::from_secs(90);

/// A node with the same VMs as any other of these.
fn node(dir: &Path) -> Node {
    let program = Some(PathBuf::from(env!("CARGO_BIN_EXE_testbed")));
    Node::create(&CreateOptions { vms: 4, seed: 7, program, ..CreateOptions::new(dir) }).unwrap()
}

fn start(node: &Node, more: &[&str]) -> Child {
    let mut config = node.vminfod_config_json("127.0.0.1:0");
    config["sweep"] = json!("200ms");
    let file = node.dir().join("vminfod.json");
    std::fs::write(&file, config.to_string()).unwrap();
    let mut args = vec!["@vminfod", "serve", "--config", file.to_str().unwrap()];
    args.extend(more);
    Child::spawn("vminfod", Path::new(env!("CARGO_BIN_EXE_testbed")), &args).unwrap()
}

/// The next log line with this message.
async fn said(child: &mut Child, msg: &str) -> Value {
    let found = async {
        loop {
            let line = child.line().await.expect("the daemon runs");
            let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
            if value["msg"] == msg {
                return value;
            }
        }
    };
    tokio::time::timeout(LATE, found).await.unwrap_or_else(|_| panic!("nothing said {msg:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shadow_tells_what_lasts_and_when_it_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (node(&dir.path().join("a")), node(&dir.path().join("b")));
    let mut place = start(&first, &[]);
    let url =
        format!("http://{}", said(&mut place, "listening").await["address"].as_str().unwrap());
    let mut shadow = start(&second, &["--shadow", &url]);
    said(&mut shadow, "listening").await;
    assert_eq!(said(&mut shadow, "shadow: compared").await["differences"], 0);

    let vms = Vminfod::new(&url).unwrap().vms(false).await.unwrap().vms;
    let vm = vms.iter().find(|vm| vm["brand"] != "bhyve" && vm.contains_key("quota")).unwrap();
    let vm = vm["zonename"].as_str().unwrap().to_owned();
    Verbs::new(&first, Wait::none()).set_quota(&vm, 77).await.unwrap();
    let line = said(&mut shadow, "shadow: differs").await;
    assert_eq!((&line["zonename"], &line["path"]), (&json!(vm), &json!("quota")));
    assert_eq!(line["there"], "77");

    Verbs::new(&second, Wait::none()).set_quota(&vm, 77).await.unwrap();
    let line = said(&mut shadow, "shadow: no longer differs").await;
    assert_eq!((&line["zonename"], &line["path"]), (&json!(vm), &json!("quota")));

    place.stop(Duration::ZERO).await.unwrap();
    said(&mut shadow, "shadow: cannot compare").await;
    shadow.stop(Duration::from_secs(5)).await.unwrap();
}
