// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! VMAPI: the verbs on the wire and the pager.

use pretty_assertions::assert_eq;
use sdc_clients::Class;
use sdc_clients::vmapi::{Vm, VmQuery, Vmapi};
use serde_json::{Value, json};

use crate::script::{Script, answer, query};

#[tokio::test]
async fn a_vm_keeps_what_it_came_with() {
    let record = json!({ "uuid": "u", "state": "shutting_down", "server_uuid": "s", "nics": [1], "x": null });
    let body = record.clone();
    let script = Script::new(move |request| {
        let body = body.clone();
        async move {
            Ok(match request.url.path() {
                "/vms/gone" => {
                    answer(404, &json!({ "code": "ResourceNotFound", "message": "VM not found" }))
                }
                _ => answer(200, &body),
            })
        }
    });
    let vmapi = Vmapi::new(script.http());
    let vm = vmapi.get_vm("u").await.unwrap();
    assert_eq!((vm.state.as_str(), vm.server_uuid.as_deref()), ("shutting_down", Some("s")));
    assert_eq!(serde_json::to_value(&vm).unwrap(), record);
    assert!(vmapi.get_vm("gone").await.unwrap_err().is_not_found_resource());
    assert_eq!(vmapi.get_vm("another").await.unwrap_err().class(), Class::Protocol);
    assert_eq!(script.targets()[0], "/vms/u", "never with sync");
    let loose: Vm =
        serde_json::from_value(json!({ "uuid": "u", "state": "rebooting", "server_uuid": null }))
            .unwrap();
    assert_eq!(loose.server_uuid, None);
}

#[tokio::test] // A15, H6
async fn listing_pages_until_a_short_page() {
    for (total, requests) in [(0u32, 1), (999, 1), (1000, 2), (2500, 3)] {
        let script = Script::new(move |request| async move {
            assert_eq!(query(&request, "offset"), None, "never shifted by what comes and goes");
            let next = query(&request, "marker").map_or(0, |marker| {
                let marker: Value = serde_json::from_str(&marker).unwrap();
                marker["uuid"].as_str().unwrap().parse::<u32>().unwrap() + 1
            });
            let page: Value = (next..(next + 1000).min(total))
                .map(|n| json!({ "uuid": n.to_string(), "state": "running" }))
                .collect();
            Ok(answer(200, &page))
        });
        let wanted = VmQuery {
            server_uuid: Some("s".into()),
            state: Some("active".into()),
            ..VmQuery::default()
        };
        let vms = Vmapi::new(script.http()).list_vms(&wanted).await.unwrap();
        assert_eq!((vms.len(), script.count()), (total as usize, requests));
        assert_eq!(script.targets()[0], "/vms?server_uuid=s&state=active&limit=1000");
    }
}

#[tokio::test]
async fn a_first_page_that_is_full_and_counts_as_all_ends_the_list() {
    for (total, requests) in [(999u32, 1), (1000, 1), (1001, 2), (2000, 3)] {
        let script = Script::new(move |request| async move {
            let first = query(&request, "marker").is_none();
            let next = if first { 0 } else { 1000.min(total) };
            let next = if query(&request, "marker").is_some_and(|it| it.contains("1999")) {
                total
            } else {
                next
            };
            let page = (next..(next + 1000).min(total))
                .map(|n| json!({ "uuid": n.to_string(), "state": "x" }));
            let mut reply = answer(200, &page.collect());
            reply.headers.insert("x-joyent-resource-count", total.into());
            Ok(reply)
        });
        let found = Vmapi::new(script.http()).records(&VmQuery::default()).await.unwrap();
        assert_eq!((found.len(), script.count()), (total as usize, requests));
    }
}

#[tokio::test]
async fn writes_go_where_vmapi_reads_them() {
    let script = Script::new(|_| async { Ok(answer(200, &json!({}))) });
    let vmapi = Vmapi::new(script.http());
    let vm = json!({ "uuid": "u" }).as_object().unwrap().clone();
    vmapi.put_vm("u", &vm).await.unwrap();
    let all = json!({ "u": vm }).as_object().unwrap().clone();
    vmapi.put_vms("cn", &all).await.unwrap();
    assert_eq!(script.targets(), ["/vms/u", "/vms?server_uuid=cn"]);
    let log = script.log.lock().unwrap();
    assert_eq!(log[1].1.body.as_deref(), Some(br#"{"vms":{"u":{"uuid":"u"}}}"#.as_slice()));
}

#[tokio::test]
async fn statuses_are_asked_for_by_the_hundred() {
    let script = Script::new(|request| async move {
        let asked = query(&request, "uuids").unwrap();
        let known = asked.split(',').filter(|u| *u != "7");
        Ok(answer(200, &known.map(|u| (u.to_owned(), json!("running"))).collect()))
    });
    let uuids: Vec<String> = (0..250).map(|n| n.to_string()).collect();
    let vmapi = Vmapi::new(script.http());
    let states = vmapi.statuses(&uuids).await.unwrap();
    assert_eq!((states.len(), script.count()), (249, 3));
    assert!(states["8"] == "running" && !states.contains_key("7"));
    assert!(vmapi.statuses(&[]).await.unwrap().is_empty());
    assert_eq!(script.count(), 3);
}

#[tokio::test]
async fn a_list_names_the_vms_the_fields_and_the_condition() {
    let script = Script::new(|request| async move {
        let uuids = query(&request, "uuids").unwrap_or_default();
        let page: Value = uuids.split(',').map(|uuid| json!({ "uuid": uuid })).collect();
        Ok(answer(200, &page))
    });
    let vmapi = Vmapi::new(script.http());
    let wanted = VmQuery {
        uuids: (0..250).map(|n| format!("u{n}")).collect(),
        owner_uuid: Some("o".into()),
        predicate: Some(json!({ "eq": ["brand", "lx"] })),
        fields: vec!["state".into()],
        ..VmQuery::default()
    };
    let found = vmapi.records(&wanted).await.unwrap();
    assert_eq!((found.len(), script.count()), (250, 3));
    let start = "/vms?fields=state%2Cuuid&owner_uuid=o\
        &predicate=%7B%22eq%22%3A%5B%22brand%22%2C%22lx%22%5D%7D&uuids=u0%2C";
    let targets = script.targets();
    assert!(targets[0].starts_with(start), "{}", targets[0]);
    assert!(targets.iter().all(|target| target.len() < 4096));
}

#[tokio::test]
async fn vms_are_ordered_once_and_the_job_is_returned() {
    let script = Script::new(|request| async move {
        let target = request.target();
        Ok(match (request.method.as_str(), &*target) {
            ("POST", _) | ("DELETE", "/vms/v") => {
                answer(202, &json!({ "vm_uuid": "v", "job_uuid": "j" }))
            }
            ("DELETE", "/vms/w") => answer(202, &json!({ "vm_uuid": "v", "job_uuid": "j" })),
            _ => return Err(sdc_clients::Error::broken(&request.method, target, "cut")),
        })
    });
    let vmapi = Vmapi::new(script.http());
    let payload = json!({ "uuid": "v", "brand": "joyent" });
    let ordered = vmapi.create_vm(payload.as_object().unwrap()).await.unwrap();
    assert_eq!((ordered.vm_uuid.as_str(), ordered.job_uuid.as_str()), ("v", "j"));
    assert_eq!(vmapi.delete_vm("v").await.unwrap(), ordered);
    assert_eq!(vmapi.delete_vm("w").await.unwrap_err().class(), Class::Protocol);
    assert!(vmapi.delete_vm("x").await.unwrap_err().may_have_applied());
    assert_eq!(script.count(), 4, "a write whose answer was lost is not repeated");
}
