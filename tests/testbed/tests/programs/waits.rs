// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Waiting for an effect: read-after-write, lost events, commands that hang, and a daemon that is
//! killed under its listeners.

use std::sync::Arc;
use std::time::Duration;

use daemon::command::Program;
use sdc_clients::Jitter;
use sdc_clients::http::Call;
use sdc_clients::vminfod::{VmObject, WatchEvent, Watcher, key_of, watch};
use serde_json::{Value, json};
use simnode::decorators::Hanging;
use simnode::state::ZoneState;
use simnode::{Verbs, Wait};
use testbed::changes::hub::{Hub, HubOptions};
use testbed::changes::same_vms;
use testbed::churn::storm::pairs::pairs;
use tokio::time::Instant;
use vminfod::config::{Config, Watch};

use super::common::{LATE, Lab, see, synced};

/// Pairs of each kind; `testbed storm --pairs 1000` runs the thousand.
const PAIRS: usize = 25;

fn field(event: &WatchEvent, vm: &str, key: &str) -> Option<Value> {
    match event {
        WatchEvent::Modified { vm: now, .. } if key_of(now) == Some(vm) => now.get(key).cloned(),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_is_stale_after_a_verb_has_returned() {
    let hub = Hub::start(HubOptions::new(5, 11)).await.unwrap();
    pairs(&hub, PAIRS).await.unwrap();
    hub.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_set_outside_does_not_come_back_after_the_verbs_own() {
    let hub = Hub::start(HubOptions::new(5, 12)).await.unwrap();
    let (verbs, client) = (hub.verbs().unwrap(), hub.client());
    let zones = hub.node.zones().unwrap();
    let zone = zones.iter().find(|zone| zone.brand != "bhyve" && zone.state == ZoneState::Running);
    let zone = zone.unwrap().clone();
    let dataset = zone.zonepath.trim_start_matches('/').to_owned();
    for round in 0..20_u64 {
        let outside = (10_u64 << 30).to_string();
        hub.node.zfs(|all| all.set(&dataset, "quota", &outside)).unwrap();
        verbs.set_quota(&zone.zonename, 20 + round).await.unwrap();
        let now = client.vm(&zone.zonename, false).await.unwrap();
        assert_eq!(now["quota"], json!(20 + round));
    }
    hub.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_event_is_found_within_one_sweep_and_counted() {
    let sweep = Duration::from_secs(1);
    let config = Config { sweep, watch: Watch::Sweep, ..Config::default() };
    let options = HubOptions { config, ..HubOptions::new(5, 13) };
    let hub = Hub::start(options).await.unwrap();
    let mut watcher = synced(&hub.client()).await;
    let zones = hub.node.zones().unwrap();
    let zone = zones.iter().find(|zone| zone.state == ZoneState::Running).unwrap().zonename.clone();
    let before = unannounced(&hub).await;
    hub.node.losing_events().zone_halt(&zone, 0).unwrap();
    let lost_at = Instant::now();
    see(&mut watcher, |event| field(event, &zone, "zone_state").filter(|s| s == "installed")).await;
    let took = lost_at.elapsed();
    assert!(took < sweep * 2, "found after {took:?}");
    assert!(unannounced(&hub).await > before, "the loss is not counted");
    hub.stop().await.unwrap();
}

/// How many differences no event announced, as `/status` tells.
async fn unannounced(hub: &Hub) -> u64 {
    let status = hub.client().status().await.unwrap();
    fn find(value: &Value) -> Option<&Value> {
        let object = value.as_object()?;
        object.get("unannounced").or_else(|| object.values().find_map(find))
    }
    match find(&status) {
        Some(Value::Object(classes)) => classes.values().filter_map(Value::as_u64).sum(),
        Some(count) => count.as_u64().unwrap(),
        None => panic!("nothing is counted in {status}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zfs_that_hangs_on_one_vm_slows_no_other() {
    let vm: Arc<std::sync::OnceLock<String>> = Arc::default();
    let hanging = Arc::clone(&vm);
    let hub = Hub::start_with(HubOptions::new(200, 14), |inner| {
        Arc::new(Hanging::new(Arc::new(inner), move |tool, args| {
            let stuck = hanging.get().filter(|_| tool == Program::Zfs);
            stuck.is_some_and(|vm: &String| args.iter().any(|arg| arg.contains(vm)))
        }))
    })
    .await
    .unwrap();
    let mut watcher = synced(&hub.client()).await;
    let names = hub.zones().unwrap();
    let (stuck, others) = names.split_first().unwrap();
    let before = median_latency(&hub, &mut watcher, others, "before").await;

    vm.set(stuck.clone()).unwrap();
    let dataset = format!("zones/{stuck}");
    for round in 0..30_u64 {
        let bytes = ((30 + round) << 30).to_string();
        hub.node.zfs(|all| all.set(&dataset, "quota", &bytes)).unwrap();
    }
    let during = median_latency(&hub, &mut watcher, others, "during").await;
    // Both are a few tens of milliseconds; a queue behind the hanging one would be 30 s.
    assert!(during < before * 3 + Duration::from_secs(5), "{before:?} before, {during:?} now");
    hub.stop().await.unwrap();
}

/// From a change to its event, in the middle of many VMs: a file's, and a dataset's.
async fn median_latency(hub: &Hub, watcher: &mut Watcher, vms: &[String], word: &str) -> Duration {
    let verbs = Verbs::new(&hub.node, Wait::none());
    let mut took = Vec::new();
    for (nth, vm) in vms.iter().take(40).enumerate() {
        let alias = json!(format!("{word}-{nth}"));
        let begun = Instant::now();
        verbs.set_field(vm, "alias", alias.clone()).await.unwrap();
        see(watcher, |event| field(event, vm, "alias").filter(|now| *now == alias)).await;
        took.push(begun.elapsed());
        let name = format!("{word}-{nth}");
        let begun = Instant::now();
        verbs.snapshot(vm, &name).await.unwrap();
        let has = |list: Value| list.to_string().contains(&name).then_some(());
        see(watcher, |event| field(event, vm, "snapshots").and_then(has)).await;
        took.push(begun.elapsed());
    }
    took.sort();
    took[took.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_of_a_killed_daemon_resume_or_are_told() {
    let mut lab = Lab::of(8).await;
    let (client, verbs) = (lab.client(), lab.verbs());
    let mut watcher = watch(&client, Jitter::from_seed(1));
    let mut mirror = Vec::new();
    see(&mut watcher, |event| listed(event, &mut mirror)).await;
    let names: Vec<String> = mirror.iter().filter_map(|vm| Some(key_of(vm)?.to_owned())).collect();
    for round in 0..5_u64 {
        // The kill comes at another point of the daemon's work each time.
        for (nth, name) in names.iter().enumerate() {
            verbs.set_field(name, "alias", json!(format!("r{round}-{nth}"))).await.unwrap();
            if nth as u64 == round {
                tokio::time::sleep(Duration::from_millis(round * 7)).await; // the point in time is the test's subject
                lab.end("vminfod", true).await.unwrap();
            }
        }
        let position = (watcher.position().0.map(str::to_owned), watcher.position().1);
        lab.start_vminfod().await.unwrap();
        let mut lost = false;
        see(&mut watcher, |event| {
            lost |= matches!(event, WatchEvent::Lost(_));
            listed(event, &mut mirror).filter(|()| lost)
        })
        .await;
        // A start of its own: what was counted by another cannot be carried on.
        if let (Some(epoch), Some(seq)) = position {
            let call = Call::get(&["events"]).query("epoch", epoch).query("since", seq);
            assert_eq!(client.get(call).await.unwrap_err().status(), Some(410));
        }
        let shown = client.vms(true).await.unwrap().vms;
        let catch_up = async {
            while same_vms(&mirror, &shown).is_err() {
                follow(&watcher.next().await, &mut mirror);
            }
        };
        let caught_up = tokio::time::timeout(LATE, catch_up).await;
        assert!(caught_up.is_ok(), "{:?}", same_vms(&mirror, &shown));
    }
    lab.stop().await;
}

fn listed(event: &WatchEvent, mirror: &mut Vec<VmObject>) -> Option<()> {
    follow(event, mirror);
    matches!(event, WatchEvent::Synced(_)).then_some(())
}

/// What somebody believes who only listens to the watcher.
fn follow(event: &WatchEvent, mirror: &mut Vec<VmObject>) {
    match event {
        WatchEvent::Synced(vms) => *mirror = vms.iter().map(|vm| vm.object().clone()).collect(),
        WatchEvent::Created(vm)
        | WatchEvent::Modified { vm, .. }
        | WatchEvent::Hidden(vm)
        | WatchEvent::Shown(vm) => {
            mirror.retain(|old| key_of(old) != key_of(vm));
            mirror.push(vm.object().clone());
        }
        WatchEvent::Deleted(vm) => mirror.retain(|old| key_of(old) != key_of(vm)),
        _ => {}
    }
}
