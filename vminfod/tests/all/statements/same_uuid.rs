// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Several zones of one uuid: the running one is shown, the others are reported.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use vm_model::stale::ZoneFile;
use vminfod::node::root::Root;
use vminfod::node::{Ctx, load};

use crate::common::FakeNode;
use crate::common::scene::{A, config_of};
use crate::common::world::World;

/// The zones of the VM [`A`].
const ZONES: [&str; 3] = [A, "alpha", "web"];

#[derive(Clone, Copy, Debug)]
enum Is {
    Gone,
    Installed,
    Running,
}

fn set(node: &FakeNode, world: &World, zone: &str, is: Is, is_announced: bool) {
    let (state, zoneid) = match is {
        Is::Gone => ("", "-"),
        Is::Installed => ("installed", "-"),
        Is::Running => ("running", "5"),
    };
    let file = format!("/etc/zones/{zone}.xml");
    match is {
        Is::Gone => {
            node.drop_zone(zone);
            let _it_may_be_gone = std::fs::remove_file(node.path(&file));
        }
        Is::Installed | Is::Running => {
            node.write_now(&file, &config_of(zone, "joyent", ""));
            node.set_line(format!("{zoneid}:{zone}:{state}:/zones/{zone}:{A}:joyent:excl:6"));
        }
    }
    if zone == A {
        node.kstat(A, matches!(is, Is::Running).then_some((10, 0, 1_767_261_600)));
    }
    if is_announced {
        world.zone_event(zone, state, -1);
        world.file_event(zone, ZoneFile::Xml);
    }
}

/// The zones that are shown, with their objects, and the names of the failures.
fn view(world: &World) -> (BTreeMap<String, Value>, Vec<String>) {
    let snapshot = world.published.snapshot();
    let shown = snapshot.vms.keys().map(|name| (name.to_string(), world.vm(name)));
    // What is left of a VM that was seen to go is known to the daemon that saw it.
    let all = world.status.view().errors;
    let mut errors: Vec<String> =
        all.keys().filter(|name| !name.ends_with(" left")).cloned().collect();
    errors.sort();
    (shown.collect(), errors)
}

/// Changes the zones, and compares the daemon with one that starts then after each change.
async fn agree(steps: Vec<(usize, Is, bool)>) {
    let node = FakeNode::new();
    node.index(&[]);
    for zone in ZONES {
        let columns = json!({"quota": "1073741824", "mountpoint": format!("/zones/{zone}")});
        node.set_dataset(&format!("zones/{zone}"), columns);
    }
    let mut world = World::start(&node, node.config()).await;
    for (at, is, is_announced) in &steps {
        set(&node, &world, ZONES[*at], *is, *is_announced);
        // Within a second of an event, else within a sweep.
        world.later(Duration::from_secs(if *is_announced { 1 } else { 12 })).await;
        let fresh = World::start(&node, node.config()).await;
        assert_eq!(view(&world), view(&fresh), "{steps:?}");
        let ctx = Ctx::new(Root::new(node.config().root), Arc::new(node.clone()));
        let read = load::objects(&ctx).await.unwrap();
        let (shown, errors) = view(&world);
        let names: Vec<&Value> = read.vms.iter().map(|vm| &vm["zonename"]).collect();
        assert_eq!(names, shown.keys().collect::<Vec<_>>(), "without a daemon: {steps:?}");
        assert_eq!(read.broken.len(), errors.len(), "{:?}", read.broken);
    }
    // A client that follows the events knows at most one at any time.
    let mut known = Vec::new();
    for event in world.events() {
        let name = event["zonename"].clone();
        match event["type"].as_str() {
            Some("create") => known.push(name),
            Some("delete") => known.retain(|other| *other != name),
            _ => {}
        }
        assert!(known.len() <= 1, "{known:?} after {steps:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test] // F77
    fn zones_of_one_uuid_are_shown_as_by_a_fresh_daemon(steps in prop::collection::vec(
        (0..ZONES.len(), prop_oneof![Just(Is::Gone), Just(Is::Installed), Just(Is::Running)], any::<bool>()),
        1..12,
    )) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(agree(steps));
    }
}

#[tokio::test(start_paused = true)] // F77, S112
async fn running_zone_replaces_the_other_one_of_its_uuid_in_one_step() {
    let node = FakeNode::one();
    node.set_dataset("zones/web", json!({"mountpoint": "/zones/web"}));
    let mut world = World::start(&node, node.config()).await;
    set(&node, &world, "web", Is::Installed, true);
    world.later(Duration::from_secs(1)).await;
    assert_eq!(view(&world).1, ["web"]);
    let zones = world.asks.zones().await.unwrap();
    assert!(zones.has("web") && !zones.has(A), "{zones:?}");
    let error = world.status.view().errors["web"].clone();
    assert!(error.message.contains(&format!("not shown: zone {A} has the same uuid")), "{error:?}");
    assert!(world.asks.fresh(Some("web")).await.is_err());
    assert!(world.events().is_empty());

    set(&node, &world, A, Is::Installed, true);
    set(&node, &world, "web", Is::Running, true);
    world.later(Duration::from_secs(1)).await;
    let events = world.events();
    let [.., gone, created] = &events[..] else { panic!("{events:#?}") };
    assert_eq!((&gone["type"], &gone["zonename"]), (&json!("delete"), &json!(A)));
    assert_eq!((&created["type"], &created["zonename"]), (&json!("create"), &json!("web")));
    assert!(events.iter().all(|event| event["uuid"] == A), "{events:#?}");
    // A uuid finds the one that is shown.
    world.asks.fresh(Some(A)).await.unwrap();
    assert_eq!(world.asks.why(A).await.unwrap().unwrap().zonename, "web");
    assert!(world.asks.zones().await.unwrap().has(A));
}
