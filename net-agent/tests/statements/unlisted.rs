// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Candidates that no list shows: NICs without `cn_uuid` of VMs destroyed here (RFD 58: all NICs,
//! even those that lacked it), and what the last run left on the disk.

use serde_json::json;
use tokio::time::sleep;

use crate::world::{CN, TARGET, World};
use crate::{HOUR, MIN, lawful};

#[tokio::test(start_paused = true)]
async fn adopts_and_reaps_nics_without_cn_uuid() {
    let world = World::new();
    world.vm("live", "running", &[1], false);
    world.nic(1, "live", json!({}));
    world.nic(2, "gone", json!({"cn_uuid": null}));
    world.nic(3, "moved", json!({"cn_uuid": null}));
    world.nic(7, "failed", json!({"cn_uuid": null}));
    world.vmapi("failed", "failed", CN);
    world.nic(4, "moving", json!({"cn_uuid": TARGET}));
    world.nic(5, "unknown", json!({"cn_uuid": null}));
    world.nic(
        6,
        "server",
        json!({"belongs_to_type": "server", "belongs_to_uuid": "gone",
        "cn_uuid": null}),
    );
    world.vmapi("gone", "destroyed", CN);
    world.vmapi("moved", "destroyed", TARGET);
    world.vmapi("moving", "destroyed", CN);
    world.vmapi("live", "running", CN);
    world.start(json!({}));
    sleep(12 * MIN).await;
    let puts = world.asked("PUT");
    assert_eq!(puts.len(), 2, "{puts:?}");
    for n in [2, 7] {
        let at = format!("f2000000000{n} Some(\"");
        let put = puts.iter().find(|(_, line)| line.contains(&at)).unwrap();
        assert!(put.1.ends_with(&format!(r#"{{"cn_uuid":"{CN}"}}"#)), "{puts:?}");
        assert!(world.has(n), "G6: it was written just now");
    }
    sleep(HOUR).await;
    assert!(!world.has(2) && !world.has(7));
    for n in [1, 3, 4, 5, 6] {
        assert!(world.has(n), "{n}");
    }
    assert_eq!(world.asked("DELETE").len(), 2);
    lawful(&world);
}

#[tokio::test(start_paused = true)]
async fn vmapi_outage_delays_only_unlisted_nics() {
    let world = crate::leak();
    world.nic(3, "gone", json!({"cn_uuid": null}));
    world.vmapi_is_down(true);
    world.start(json!({}));
    sleep(HOUR).await;
    world.vmapi_is_down(false);
    sleep(HOUR).await;
    assert!(!world.has(2) && world.has(3));
    lawful(&world);
}

#[test]
fn looks_into_macs_of_the_last_run() {
    let world = World::new();
    world.vm("v", "receiving", &[1, 2, 3], false);
    world.vm("stays", "running", &[4], false);
    world.vm("other", "running", &[5], false);
    // No cn_uuid, and never any: the VM was in no state to be written about.
    for n in [1, 2] {
        world.nic(n, "v", json!({"cn_uuid": null}));
    }
    world.nic(3, "somebody", json!({"cn_uuid": null}));
    world.nic(4, "stays", json!({}));
    world.nic(5, "other", json!({}));
    let over = || json!({"fallback": "probe"});
    world.live_and_crash(over(), 3 * MIN, |_| {});
    world.quietly("v", None);
    world.vmapi("v", "failed", CN);
    world.live_and_crash(over(), 2 * HOUR, |_| {});
    assert!(!world.has(1) && !world.has(2), "adopted and reaped");
    assert!(world.has(3) && world.has(4) && world.has(5));
    lawful(&world);
}

#[tokio::test(start_paused = true)]
async fn judges_unlisted_records_by_a_younger_view() {
    let world = World::new();
    world.vm("live", "running", &[1], false);
    world.nic(1, "live", json!({}));
    world.nic(2, "gone", json!({"cn_uuid": null}));
    world.vmapi("gone", "destroyed", CN);
    world.vmapi("live", "running", CN);
    let second = json!({"min": "1s", "max": "1s"});
    world.start(json!({"startup_delay": second, "second_look": "100s"}));
    while world.asked("PUT").is_empty() {
        sleep(crate::SEC).await;
    }
    sleep(10 * crate::SEC).await;
    let views = world.hub_asked("/vms?sync=zones");
    assert_eq!(views, 3, "before the list, after it, and after what it lacks");
}
