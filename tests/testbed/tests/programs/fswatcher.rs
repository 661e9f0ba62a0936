// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! vminfod with the file watcher that it uses on SmartOS: the `fswatcher` helper.

use rustix::process::Signal;
use serde_json::json;
use simnode::edits::ConfigMap;
use testbed::held::children_of;

use super::common::{Lab, edit_alias, see_modified, signal, text, until};

#[tokio::test(flavor = "multi_thread")] // F79
async fn files_are_watched_by_the_helper_and_by_its_successor() {
    let lab = Lab::without_sweeps(|options| {
        options.vms = 6;
        options.vminfod.insert("watch".to_owned(), json!("fswatcher"));
    })
    .await;
    let vm = lab.pick("running").await;
    let (uuid, file) = (text(&vm, "uuid"), lab.node().zone_xml(text(&vm, "zonename")));
    let mut watcher = lab.watcher().await;
    let helper = || children_of(lab.pid("vminfod").unwrap(), "fswatcher");
    let verbs = lab.verbs();
    for round in ["first", "second"] {
        until("the helper runs", async || helper().len() == 1).await;
        // Renamed over the old one.
        verbs.set_field(uuid, "alias", json!(round)).await.unwrap();
        see_modified(&mut watcher, uuid, |vm| vm["alias"] == round).await;
        let tag = json!({"round": round});
        let tag = tag.as_object().cloned().unwrap();
        verbs.set_map(uuid, ConfigMap::Tags, tag, Vec::new()).await.unwrap();
        see_modified(&mut watcher, uuid, |vm| vm["tags"]["round"] == round).await;
        edit_alias(&file);
        see_modified(&mut watcher, uuid, |vm| vm["alias"] == "by-hand").await;
        if round == "first" {
            signal(helper()[0], Signal::KILL);
        }
    }
    lab.stop().await;
}
