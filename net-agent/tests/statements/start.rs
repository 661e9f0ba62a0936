// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Statements 1–5: when the first list is asked for, and of whom.

use mocks::napi::Era;
use serde_json::json;
use tokio::time::sleep;

use crate::world::{CN, HOME, World};
use crate::{HOUR, MIN, lawful, leak};

#[tokio::test(start_paused = true)] // C1, R1, race 22
async fn spreads_first_lists_over_2_to_10_minutes() {
    let worlds: Vec<World> = (0..1000)
        .map(|seed| {
            let world = World::new();
            world.start(json!({"seed": seed}));
            world
        })
        .collect();
    sleep(11 * MIN).await;
    let mut buckets = [0usize; 8];
    let mut sum = 0.0;
    for world in &worlds {
        let (at, line) = world.asked("cn_uuid=").first().cloned().unwrap();
        assert!(at >= 2 * MIN && at <= 10 * MIN + MIN / 30, "{at:?} {line}");
        sum += at.as_secs_f64();
        let bucket = usize::try_from((at.as_secs() - 120) / 60).unwrap().min(7);
        buckets[bucket] += 1;
    }
    assert!(buckets.iter().all(|n| (80..=175).contains(n)), "{buckets:?}");
    assert!((345.0..375.0).contains(&(sum / 1000.0)), "{}", sum / 1000.0);
}

#[tokio::test(start_paused = true)] // C2
async fn lists_only_after_a_view_and_with_a_cn_uuid() {
    let world = leak();
    world.hub(HOME).stop();
    let (agent, _) = world.start(json!({}));
    sleep(5 * HOUR).await;
    assert!(world.asked("").is_empty());
    let waiting = agent.parts.status.waiting_for().join(" ");
    assert!(waiting.contains("waiting for vminfod"), "{waiting}");
    world.hub(HOME).restart();
    sleep(HOUR).await;
    let lists = world.asked("GET /search/nics?");
    assert!(!lists.is_empty() && lists.iter().all(|(_, l)| l.contains(&format!("cn_uuid={CN}"))));
    assert!(!world.has(2));
}

#[tokio::test(start_paused = true)] // C3, R3, R14
async fn tries_search_first_and_waits_hours_without_it() {
    let world = leak();
    world.nic(1, "live", json!({"state": "provisioning", "cn_uuid": null}));
    world.vm("live", "stopped", &[1], false);
    world.start(json!({"fallback": "never"}));
    sleep(HOUR).await;
    let lists = world.asked("cn_uuid=");
    assert!(lists[0].1.starts_with("GET /search/nics?"), "{lists:?}");
    world.vm("live", "running", &[1], false);
    sleep(HOUR).await;
    assert_eq!(world.asked("cn_uuid=").len(), 1, "R4: hours");
    assert_eq!((world.field(1, "state"), world.field(1, "cn_uuid")), (json!("running"), json!(CN)));
    assert!(world.has(2), "R4: no reap");
    lawful(&world);
}

#[tokio::test(start_paused = true)] // C4, R4, R19
async fn uses_nics_only_where_it_filters() {
    let world = leak();
    world.start(json!({"fallback": "probe"}));
    sleep(HOUR).await;
    assert!(!world.has(2) && world.has(1));
    lawful(&world);
    for lenient in [false, true] {
        let world = leak();
        world.napi.set_era(if lenient { Era::Old2015 } else { Era::Mid2017 });
        world.start(json!({"fallback": "probe"}));
        sleep(4 * HOUR).await;
        let lists = world.asked("GET /nics?cn_uuid=");
        assert!(lists.len() <= 2 && lists.iter().all(|(_, l)| l.contains("limit=1&")), "{lists:?}");
        assert!(world.has(2));
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)] // C5, R5
async fn reaps_after_an_upgrade_without_a_restart() {
    for fallback in ["never", "probe"] {
        let world = leak();
        world.napi.set_era(Era::Mid2017);
        world.start(json!({"fallback": fallback}));
        sleep(2 * HOUR).await;
        assert!(world.has(2));
        world.napi.set_era(Era::Rfd58);
        sleep(4 * HOUR).await;
        assert!(!world.has(2) && world.has(1), "{fallback}");
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_clean_nics_cost_eleven_lists() {
    for (search, more) in [(true, 0), (false, 2)] {
        let world = World::new();
        if search {
            world.napi.set_era(Era::Rfd58);
        }
        world.hub(HOME).set_sysinfo(json!({"UUID": CN, "Network Interfaces": {
            "e0": {"MAC Address": "0c:00:00:00:00:01"}, "e1": {"MAC Address": "0c:00:00:00:00:02"}}}));
        for n in [1, 2] {
            let mac = format!("0c:00:00:00:00:{n:02x}");
            world.nic_at(&mac, CN, json!({"belongs_to_type": "server", "cn_uuid": null}));
        }
        let mut nics = Vec::new();
        for n in 0..10_000 {
            let mac = crate::world::mac_of(n);
            world.nic_at(&mac, "live", json!({}));
            nics.push(json!({"mac": mac}));
        }
        world.vm("live", "running", &[], false);
        world.wears("live", json!(nics));
        world.start(json!({}));
        sleep(HOUR).await;
        let lists = world.asked("cn_uuid=").len();
        assert_eq!(lists, 11 + more, "{}", world.asked("").len());
        assert_eq!(world.asked("").len(), 11 + more + 3);
        assert!(world.writes().is_empty());
        lawful(&world);
    }
}
