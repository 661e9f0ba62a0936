// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! vminfod with the file watcher that it uses on SmartOS: the `fswatcher` helper.

use sdc_clients::Jitter;
use sdc_clients::vminfod::{WatchEvent, watch};
use serde_json::{Value, json};
use simnode::edits::ConfigMap;
use simnode::{Verbs, Wait};
use testbed::lab::world::until;
use testbed::lab::{World, WorldOptions};
use testbed::process::{children_of, kill};

use super::hub::{SOON, is_synced, pick, program, see, text};

#[tokio::test(flavor = "multi_thread")]
async fn files_are_watched_by_the_helper_and_by_its_successor() {
    let dir = tempfile::tempdir().unwrap();
    let mode = json!({"watch": "fswatcher"});
    let mut world = World::create(WorldOptions {
        vms: 6,
        vminfod: mode.as_object().cloned().unwrap(),
        ..WorldOptions::new(dir.path().join("cn"), program())
    })
    .await
    .unwrap();
    world.start_vminfod().await.unwrap();
    let vm = pick(&world, "running").await;
    let (uuid, file) = (text(&vm, "uuid"), world.node().zone_xml(text(&vm, "zonename")));
    let mut watcher = watch(&world.hub().unwrap(), Jitter::from_seed(1));
    see(&mut watcher, SOON, is_synced).await;
    let helper = || children_of(world.vminfod_pid().unwrap(), "fswatcher");
    let mut field = async |key: &str, part: fn(&Value) -> &Value, value: Value| {
        // Sweeps are 10 s apart here: what comes sooner was reported by the helper.
        see(&mut watcher, SOON, |event| match event {
            WatchEvent::Modified { vm: now, .. } => {
                (now["uuid"] == uuid && *part(&now[key]) == value).then_some(())
            }
            _ => None,
        })
        .await;
    };
    let verbs = Verbs::new(world.node(), Wait::none());
    for round in ["first", "second"] {
        until("the helper runs", SOON, || async { Ok(helper().len() == 1) }).await.unwrap();
        // Renamed over the old one.
        verbs.set_field(uuid, "alias", json!(format!("renamed-{round}"))).await.unwrap();
        field("alias", |alias| alias, json!(format!("renamed-{round}"))).await;
        let tag = json!({"round": round});
        let tag = tag.as_object().cloned().unwrap();
        verbs.set_map(uuid, ConfigMap::Tags, tag, Vec::new()).await.unwrap();
        field("tags", |tags| &tags["round"], json!(round)).await;
        // Written in place.
        let xml = std::fs::read_to_string(&file).unwrap();
        let alias = xml.split("name=\"alias\"").nth(1).and_then(|rest| rest.split('"').nth(3));
        std::fs::write(&file, xml.replace(alias.unwrap(), "YnktaGFuZA==")).unwrap();
        field("alias", |alias| alias, json!("by-hand")).await;
        if round == "first" {
            kill(helper()[0]);
        }
    }
    world.stop().await.unwrap();
}
