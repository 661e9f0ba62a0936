// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `vminfod serve --shadow`: two real daemons, and what the second one says of the first.

use std::time::Duration;

use sdc_clients::vminfod::Vminfod;
use serde_json::json;
use simnode::{Node, Verbs, Wait};
use testbed::process::Child;

use super::common::{LATE, node, program, said};

fn start(node: &Node, more: &[&str]) -> Child {
    let mut config = node.vminfod_config_json("127.0.0.1:0");
    config["sweep"] = json!("200ms");
    let file = node.dir().join("vminfod.json");
    std::fs::write(&file, config.to_string()).unwrap();
    let args = [&["@vminfod", "serve", "--config", file.to_str().unwrap()], more].concat();
    Child::spawn("vminfod", &program(), &args).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shadow_tells_what_lasts_and_when_it_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (node(&dir.path().join("a"), 4), node(&dir.path().join("b"), 4));
    let mut place = start(&first, &[]);
    let url =
        format!("http://{}", said(&mut place, "listening").await["address"].as_str().unwrap());
    let mut shadow = start(&second, &["--shadow", &url]);
    said(&mut shadow, "listening").await;
    assert_eq!(said(&mut shadow, "shadow: compared").await["differences"], 0);

    let vms = Vminfod::new(&url, "test/1").unwrap().vms(false).await.unwrap().vms;
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
    shadow.stop(LATE).await.unwrap();
}
