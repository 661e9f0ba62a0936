// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the real NAPI does, and hostile ones: records that cannot be read, a filter that is ignored,
//! silence and outages, clocks that are wrong.

use net_agent::status::Count;
use serde_json::json;
use tokio::time::sleep;

use crate::world::{CN, TARGET, mac, mac_of};
use crate::{HOUR, MIN, lawful, leak};

#[tokio::test(start_paused = true)] // F74, S31, S32
async fn one_odd_record_does_not_void_the_list() {
    let world = leak();
    world.nic(3, "live", json!({"cn_uuid": [CN]}));
    world.nic(4, "gone", json!({"cn_uuid": [CN.to_uppercase()]}));
    world.nic(5, "gone", json!({"cn_uuid": CN.to_uppercase()}));
    world.nic(6, "gone", json!({"cn_uuid": [CN, TARGET]}));
    world.nic_at("f2:00:00", "gone", json!({}));
    world.vm("live", "running", &[1, 3], false);
    let (agent, _) = world.start(json!({}));
    sleep(HOUR).await;
    assert_eq!([2, 4, 5].map(|n| world.has(n)), [false; 3], "{:?}", world.writes());
    assert!(world.has(1) && world.has(3) && world.has(6));
    let status = agent.status_json().await;
    assert_eq!(status["unreadable"], 2, "{status}");
    let first = status["unreadable_nics"].to_string();
    assert!(first.contains(&mac(6)) && first.contains("not a MAC address"), "{first}");
    assert!(world.writes().iter().all(|line| line.starts_with("DELETE")), "{:?}", world.writes());
    lawful(&world);
}

#[tokio::test(start_paused = true)] // F74, S33
async fn reads_the_list_around_a_record_of_a_lost_network() {
    let world = leak();
    for n in 3..40 {
        world.nic(n, "live", json!({}));
    }
    world.vm("live", "running", &(3..40).chain([1]).collect::<Vec<u8>>(), false);
    world.state().broken.push(mac(17).replace(':', ""));
    let (agent, _) = world.start(json!({}));
    sleep(20 * MIN).await;
    assert!(!world.has(2), "{:?}", agent.status_json().await);
    assert_eq!(agent.parts.status.get(Count::Unreadable), 1);
    assert_eq!(agent.parts.status.get(Count::Listed), 38);
    lawful(&world);
}

#[tokio::test(start_paused = true)] // F75, race 26
async fn ignored_filter_costs_one_page_in_hours() {
    let world = leak();
    for n in 3..4000 {
        world.nic_at(&mac_of(n), "elsewhere", json!({"cn_uuid": TARGET}));
    }
    {
        let mut state = world.state();
        (state.search, state.lenient, state.filters) = (true, true, false);
    }
    let (agent, _) = world.start(json!({}));
    sleep(2 * HOUR).await;
    let lists = || world.asked("GET /search/nics").len();
    assert_eq!(lists(), 1, "{:?}", world.asked("GET /search"));
    let waits = agent.parts.status.waiting_for().join(" ");
    assert!(waits.contains("filtered list holds") && waits.contains(TARGET), "{waits}");
    assert!(world.writes().is_empty());
    sleep(5 * HOUR).await;
    assert_eq!(lists(), 2, "asked again after hours");
    world.state().filters = true;
    sleep(6 * HOUR).await;
    assert!(!world.has(2));
    lawful(&world);
}
