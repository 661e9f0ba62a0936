// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! kvmd on a simulated SmartOS node: the real vminfod tells, and kvmd says who turned zones off.

use daemon::{Fields, Shutdown};
use kvmd::config::Config;
use kvmd::service::{Running, serve};
use serde_json::{Value, json};
use simnode::sample;

use super::common::{Lab, until};

/// Wait statuses of a zone's init: ended with 0, and by KILL.
const ENDED: i64 = 0;
const KILLED: i64 = 9;

async fn start(lab: &Lab) -> Running {
    let settings = json!({
        "enabled": true,
        "listen": "127.0.0.1:0",
        "run_dir": lab.dir().join("kvmd"),
        "control": {"enabled": false},
        "vminfod": {"enabled": true, "url": lab.vminfod_url(), "trust_tcp": true, "settle": "300ms"},
    });
    let config = Config::read(Fields::from_json(&settings.to_string()).unwrap()).unwrap().0;
    serve(config, lab.node().root(), Shutdown::new()).await.unwrap()
}

/// Waits for the `count`th verdict of all; gives the latest on `name`.
async fn verdict(kvmd: &Running, name: &str, count: u64) -> Value {
    let all = || kvmd.ledger.snapshot();
    until("a verdict", async || all().counts.verdicts >= count).await;
    assert_eq!(all().counts.verdicts, count);
    all().verdicts().into_iter().find(|it| it["name"] == name).unwrap()
}

fn said(verdict: &Value) -> String {
    format!("{}/{}", verdict["initiator"].as_str().unwrap(), verdict["kind"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_of_zones_on_a_node_are_told_apart() {
    let lab = Lab::start(|_| ()).await;
    let kvmd = start(&lab).await;
    let verbs = lab.verbs();
    let mut count = 0;
    for (brand, uuid) in [("kvm", 0x61_0a), ("bhyve", 0x61_0b)] {
        let mut payload = sample::fresh(brand, Some(7)).unwrap();
        payload.insert("uuid".into(), json!(uuid::Uuid::from_u128(uuid).to_string()));
        payload.insert("autoboot".into(), json!(true));
        let name = verbs.create(&payload).await.unwrap();
        let hub = lab.client();
        let runs = async || {
            let vm = hub.vm(&name, true).await.unwrap();
            vm["zone_state"] == "running" && vm.get("autoboot") != Some(&json!(false))
        };
        let halt = |status| {
            let (node, name) = (lab.node().clone(), name.clone());
            tokio::task::spawn_blocking(move || node.zone_halt(&name, status).unwrap())
        };
        // Its user: the hypervisor ends well, and nobody asked for it.
        until("it runs", runs).await;
        halt(ENDED).await.unwrap();
        count += 1;
        let by_user = verdict(&kvmd, &name, count).await;
        assert_eq!((said(&by_user).as_str(), &by_user["user"]), ("guest/poweroff", &json!(true)));
        // The operator.
        verbs.boot(&name).await.unwrap();
        until("it runs", runs).await;
        verbs.halt(&name, ENDED).await.unwrap();
        count += 1;
        assert_eq!(said(&verdict(&kvmd, &name, count).await), "host/powerdown", "{brand}");
        // Nobody knows.
        verbs.boot(&name).await.unwrap();
        until("it runs", runs).await;
        halt(KILLED).await.unwrap();
        count += 1;
        let killed = verdict(&kvmd, &name, count).await;
        assert_eq!((said(&killed).as_str(), &killed["user"]), ("unknown/abrupt", &json!(false)));
        assert!(killed["evidence"].to_string().contains("signal 9"), "{killed}");
        // Deleted as it runs.
        verbs.boot(&name).await.unwrap();
        until("it runs", runs).await;
        verbs.delete(&name).await.unwrap();
        count += 1;
        until("the deletion is told", async || {
            let told = kvmd.ledger.snapshot();
            told.counts.verdicts == count && told.verdicts().iter().all(|it| it["name"] != *name)
        })
        .await;
        assert_eq!(kvmd.ledger.snapshot().counts.users, if brand == "kvm" { 1 } else { 2 });
    }
    lab.stop().await;
}
