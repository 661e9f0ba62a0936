// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! PAPI, IMGAPI, volapi and the workflow API: the verbs on the wire, and every answer of the recordings.

use pretty_assertions::assert_eq;
use sdc_clients::Class;
use sdc_clients::imgapi::{Image, Imgapi};
use sdc_clients::papi::{Package, PackageQuery, Papi};
use sdc_clients::vmapi::Vmapi;
use sdc_clients::volapi::{Reservation, Volapi, Volume};
use sdc_clients::workflow::{Job, Workflow};
use serde_json::{Value, json};

use crate::script::{Script, answer};

#[tokio::test]
async fn a_record_that_cannot_be_read_hides_no_other() {
    let script = Script::new(|request| async move {
        let good = json!({ "uuid": "i", "name": "n", "state": "active" });
        let nameless = json!({ "uuid": "j", "name": null, "state": "active" });
        Ok(match request.url.query() {
            Some(query) if query.contains("no-list") => answer(200, &json!([good, "j"])),
            _ => answer(200, &json!([nameless, good])),
        })
    });
    let (images, unreadable) = Imgapi::new(script.http()).list_images("n").await.unwrap();
    let uuids: Vec<&str> = images.iter().map(|image| &*image.uuid).collect();
    assert_eq!((uuids, unreadable.count), (vec!["i"], 1));
    assert!(unreadable.first[0].contains(r#""uuid":"j""#), "{unreadable:?}");
    let refused = Imgapi::new(script.http()).list_images("no-list").await.unwrap_err();
    assert_eq!(refused.class(), Class::Protocol);
    let papi = Papi::new(script.http());
    let (packages, unreadable) = papi.list_packages(&PackageQuery::default()).await.unwrap();
    assert_eq!((packages.len(), unreadable.count), (1, 1));
}

#[tokio::test]
async fn the_verbs_have_the_recorded_form() {
    let script = Script::new(|request| async move {
        let package = json!({ "uuid": "p", "name": "sdc_volume_nfs_10", "quota": 10240 });
        Ok(match request.url.path() {
            "/packages" => answer(200, &json!([package])),
            "/packages/p" => answer(200, &package),
            "/images" => answer(200, &json!([{ "uuid": "i", "name": "n", "state": "active" }])),
            "/images/i" => answer(200, &json!({ "uuid": "i", "name": "n", "state": "active" })),
            _ => answer(200, &json!({ "uuid": "j", "execution": "running" })),
        })
    });
    let papi = Papi::new(script.http());
    let (name, sort) = (Some("sdc_volume_nfs*".into()), Some("quota".into()));
    let query = PackageQuery { active: Some(true), name, sort };
    let listed = papi.list_packages(&query).await.unwrap();
    assert_eq!(listed.0, [papi.get_package("p").await.unwrap()]);
    let imgapi = Imgapi::new(script.http());
    assert_eq!(imgapi.get_image("i").await.unwrap().state, "active");
    assert_eq!(imgapi.list_images("n").await.unwrap().0.len(), 1);
    let source = "https://updates.tritondatacenter.com";
    imgapi.import_remote_image("i", source).await.unwrap();
    let workflow = Workflow::new(script.http());
    assert!(!workflow.get_job("j").await.unwrap().is_over());
    for wrong in [
        papi.get_package("q").await.unwrap_err(),
        imgapi.get_image("q").await.unwrap_err(),
        workflow.get_job("q").await.unwrap_err(),
    ] {
        assert_eq!(wrong.class(), Class::Protocol, "{wrong}");
    }
    assert_eq!(
        script.targets()[..6],
        [
            "/packages?active=true&name=sdc_volume_nfs*&sort=quota",
            "/packages/p",
            "/images/i",
            "/images?name=n&state=active",
            "/images/i?action=import-remote&source=https%3A%2F%2Fupdates.tritondatacenter.com&skip_owner_check=true",
            "/jobs/j",
        ]
    );
}

#[tokio::test]
async fn volumes_are_asked_for_with_their_owner() {
    let volume = json!({ "uuid": "v", "name": "n", "owner_uuid": "o", "size": 10240,
        "state": "ready", "vm_uuid": "z" });
    let script = Script::new(move |request| {
        let body = match (request.method.as_str(), request.url.path()) {
            ("DELETE", _) => return std::future::ready(Ok(answer(204, &Value::Null))),
            (_, "/volumes") => json!([volume]),
            (_, "/volumereservations") => json!([]),
            ("POST", _) => {
                return std::future::ready(Ok(answer(
                    202,
                    &json!({ "vm_uuid": "z", "job_uuid": "j" }),
                )));
            }
            _ => volume.clone(),
        };
        std::future::ready(Ok(answer(200, &body)))
    });
    let volapi = Volapi::new(script.http());
    let listed = volapi.list(Some("o")).await.unwrap();
    assert_eq!(listed, [volapi.get("v").await.unwrap()]);
    assert_eq!(volapi.get("w").await.unwrap_err().class(), Class::Protocol);
    assert!(volapi.reservations().await.unwrap().is_empty());
    volapi.delete("v", "o", true).await.unwrap();
    let vmapi = Vmapi::new(script.http());
    assert_eq!(vmapi.reboot_vm("z").await.unwrap().job_uuid, "j");
    assert_eq!(vmapi.reprovision_vm("y", "i").await.unwrap_err().class(), Class::Protocol);
    assert_eq!(
        script.targets(),
        [
            "/volumes?owner_uuid=o",
            "/volumes/v",
            "/volumes/w",
            "/volumereservations",
            "/volumes/v?owner_uuid=o&force=true",
            "/vms/z?action=reboot",
            "/vms/y?action=reprovision",
        ]
    );
}

#[test]
fn volumes_as_recorded() {
    let mut seen = [0; 2];
    for line in recordings::text("volapi-transcripts.jsonl").unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let (path, body) = (&line["request"]["path"], &line["response"]["body"]);
        let is_good = matches!(line["response"]["status"].as_u64(), Some(200 | 201));
        for one in body.as_array().map_or(std::slice::from_ref(body), Vec::as_slice) {
            let again = match path.as_str().unwrap_or_default() {
                _ if !is_good || !one.is_object() => continue,
                "/volumes" => (0, again::<Volume>(one)),
                "/volumereservations" => (1, again::<Reservation>(one)),
                _ => continue,
            };
            // A whole number may be printed as one with a point.
            let whole = |value: &Value| value["size"].as_f64();
            assert_eq!(whole(&again.1), whole(one));
            assert_eq!(again.1["refs"], one["refs"]);
            seen[again.0] += 1;
        }
    }
    assert!(seen.iter().all(|count| *count > 10), "{seen:?}");
}

#[test]
fn packages_images_and_jobs_as_recorded() {
    let mut seen = [0; 3];
    for name in ["vmapi-peer-calls.jsonl", "volapi-peer-calls.jsonl"] {
        for line in recordings::text(name).unwrap().lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            for call in line["calls"].as_array().into_iter().flatten() {
                let body = &call["response"];
                if !body.is_object() || !matches!(call["status"].as_u64(), Some(200 | 201)) {
                    continue;
                }
                let (kind, again) = match call["peer"].as_str().unwrap() {
                    "papi" => (0, again::<Package>(body)),
                    "imgapi" => (1, again::<Image>(body)),
                    "wfapi" => (2, again::<Job>(body)),
                    _ => continue,
                };
                assert_eq!(&again, body);
                if kind == 2 {
                    let job: Job = serde_json::from_value(body.clone()).unwrap();
                    assert!(job.ordered_at().is_some() && !job.is_over());
                }
                seen[kind] += 1;
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

/// What is left of an answer that was read and is printed again.
fn again<T: serde::Serialize + serde::de::DeserializeOwned>(body: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(body.clone()).unwrap()).unwrap()
}
