// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `volapi import --from URL`: the records of another service.

use sdc_clients::http::Call;
use serde_json::json;
use testbed::process;

use super::rig::{OWNER, Rig, create, post};
use crate::common::{LATE, program};

#[tokio::test] // V55
async fn an_import_takes_all_records_over_and_may_be_repeated() {
    let (theirs, ours) = (Rig::start().await, Rig::start().await);
    let deployed = theirs.volapi(json!({})).await;
    let one = deployed.ready("one").await["uuid"].as_str().unwrap().to_owned();
    let two = deployed.ready("two").await["uuid"].as_str().unwrap().to_owned();
    let (vm, job) =
        ("99999999-9999-4999-8999-999999999999", "77777777-7777-4777-8777-777777777777");
    let reserve = |name: &str| {
        let body =
            json!({"owner_uuid": OWNER, "vm_uuid": vm, "job_uuid": job, "volume_name": name});
        post(&["volumereservations"], body)
    };
    let (status, reserved) = deployed.ask(reserve("three")).await;
    assert_eq!(status, 201);
    let reserved = reserved["uuid"].as_str().unwrap();
    let volapi = ours.volapi(json!({})).await;
    let config = volapi.config.clone();
    volapi.stop().await;
    let url = deployed.url();
    let import = async || {
        let args = ["@volapi", "import", "--config", &config, "--from", &url];
        let done = process::run(&program(), &args, LATE).await.unwrap();
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stdout
    };
    let mut lines: Vec<String> = [&one, &two].map(|uuid| format!("volume {uuid}: new\n")).into();
    lines.sort();
    let said = import().await;
    let reservations =
        format!("reservation {reserved}: new\nreservations: 1 new, 0 differed, 0 alike\n");
    assert_eq!(said, lines.concat() + "volumes: 2 new, 0 differed, 0 alike\n" + &reservations);
    let again = import().await;
    let alike = "volumes: 0 new, 0 differed, 2 alike\nreservations: 0 new, 0 differed, 1 alike\n";
    assert_eq!(again, alike);

    // What changes there meanwhile is named and taken; what is only here stays.
    let added = json!({"owner_uuid": OWNER, "vm_uuid": vm});
    assert_eq!(deployed.ask(post(&["volumes", &one, "addreference"], added)).await.0, 204);
    assert_eq!(deployed.delete(&two).await.0, 204);
    let gone = async || deployed.get(&two).await.0 == 404;
    crate::common::until("the volume is gone", gone).await;
    let said = import().await;
    let expected = format!(
        "volume {one}: refs differed\nvolume {two}: only here\n\
         volumes: 0 new, 1 differed, 0 alike\nreservations: 0 new, 0 differed, 1 alike\n"
    );
    assert_eq!(said, expected);

    // They are served as they were there, and their names are taken.
    let volapi = ours.volapi(json!({})).await;
    let list = |name: &str| Call::get(&["volumes"]).query("name", name);
    assert_eq!(volapi.ask(list("one")).await, deployed.ask(list("one")).await);
    let all = Call::get(&["volumereservations"]);
    assert_eq!(volapi.ask(all.clone()).await, deployed.ask(all).await);
    let (status, body) = volapi.ask(create(None, "one")).await;
    assert_eq!((status, &body["code"]), (409, &json!("VolumeAlreadyExists")));
    volapi.stop().await;
    deployed.stop().await;
}
