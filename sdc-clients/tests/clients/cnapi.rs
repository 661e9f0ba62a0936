// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! CNAPI: the verbs on the wire, the pager, long waits, and every ticket and task of the recordings.

use std::time::Duration;

use pretty_assertions::assert_eq;
use sdc_clients::cnapi::{
    Allocation, Cnapi, DEFAULT_SERVER, Placement, Server, ServerQuery, Task, Ticket, TicketOrder,
};
use sdc_clients::napi::{IpUpdate, Napi};
use sdc_clients::{Class, Precondition};
use serde_json::{Map, Value, json};

use crate::script::{Script, answer, query};

fn order(expires_at: jiff::Timestamp) -> TicketOrder {
    let (scope, id) = ("nfs_volume".to_owned(), "o-n".to_owned());
    TicketOrder { scope, id, expires_at, action: None, extra: None }
}

#[tokio::test]
async fn tickets_and_tasks_have_the_recorded_form() {
    let at: jiff::Timestamp = "2026-11-22T16:24:45.094Z".parse().unwrap();
    let script = Script::new(|request| async move {
        let (method, path) = (request.method.as_str(), request.url.path());
        Ok(match (method, path) {
            ("POST", "/servers/default/tickets") => {
                let body = json!({ "uuid": "t", "queue": [{ "uuid": "t" }] });
                answer(202, &body)
            }
            ("GET", "/tickets/t/wait") | ("PUT", "/tickets/t/release") => answer(204, &Value::Null),
            ("GET", "/tickets/t") => {
                answer(404, &json!({ "code": "ResourceNotFound", "message": "ticket not found" }))
            }
            ("POST" | "DELETE", _) => answer(200, &json!({ "id": "task" })),
            (_, "/servers/s/vms/v") => answer(200, &json!({ "uuid": "v" })),
            _ => answer(200, &json!({ "id": "task", "status": "complete" })),
        })
    });
    let cnapi = Cnapi::new(script.http());
    assert_eq!(cnapi.create_ticket(DEFAULT_SERVER, &order(at)).await.unwrap(), "t");
    cnapi.wait_ticket("t", Duration::from_secs(1)).await.unwrap();
    assert!(cnapi.get_ticket("t").await.unwrap_err().is_not_found_resource());
    cnapi.release_ticket("t").await.unwrap();
    assert_eq!(cnapi.create_vm("s", &Map::new()).await.unwrap(), "task");
    assert_eq!(cnapi.delete_vm("s", "v", true).await.unwrap(), "task");
    cnapi.delete_vm("s", "v", false).await.unwrap();
    cnapi.get_vm("s", "v", true).await.unwrap();
    assert!(cnapi.wait_task("task", Duration::from_secs(900)).await.unwrap().is_complete());
    cnapi.get_task("task").await.unwrap();
    assert_eq!(
        script.targets(),
        [
            "/servers/default/tickets",
            "/tickets/t/wait",
            "/tickets/t",
            "/tickets/t/release",
            "/servers/s/vms",
            "/servers/s/vms/v?include_dni=true",
            "/servers/s/vms/v",
            "/servers/s/vms/v?include_dni=true",
            "/tasks/task/wait?timeout=600",
            "/tasks/task",
        ]
    );
    let log = script.log.lock().unwrap();
    let bodies: Vec<&[u8]> =
        log.iter().filter_map(|(_, request)| request.body.as_deref()).take(2).collect();
    let iso: &[u8] =
        br#"{"scope":"nfs_volume","id":"o-n","expires_at":"2026-11-22T16:24:45.094Z"}"#;
    assert_eq!(bodies, [iso, b"{}"]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_one_request_however_long_it_takes() {
    let script = Script::new(|request| async move {
        tokio::time::sleep(request.timeout).await;
        let (method, target) = (&request.method, request.target());
        Err(sdc_clients::Error::timed_out(
            sdc_clients::Phase::Answer,
            method,
            target,
            request.timeout,
        ))
    });
    let cnapi = Cnapi::new(script.http());
    let began = tokio::time::Instant::now();
    let within = Duration::from_secs(600);
    assert!(cnapi.wait_ticket("t", within).await.unwrap_err().is_timeout());
    assert!(cnapi.wait_task("t", within).await.unwrap_err().is_timeout());
    // The client waits a little longer than the server does.
    assert_eq!((script.count(), began.elapsed()), (2, within * 2 + Duration::from_secs(30)));
}

#[tokio::test]
async fn an_order_whose_answer_is_lost_is_not_repeated() {
    let script = Script::new(|request| async move {
        Err(sdc_clients::Error::broken(&request.method, request.target(), "cut"))
    });
    let cnapi = Cnapi::new(script.http());
    let order = order(jiff::Timestamp::UNIX_EPOCH);
    let lost = cnapi.create_ticket(DEFAULT_SERVER, &order).await.unwrap_err();
    assert_eq!((lost.class(), script.count()), (Class::UnknownOutcome, 1));
    let lost = cnapi.create_vm("s", &Map::new()).await.unwrap_err();
    assert!(lost.may_have_applied());
    assert_eq!(script.count(), 2);
}

#[tokio::test]
async fn servers_are_listed_page_by_page() {
    let script = Script::new(|request| async move {
        let offset: u64 = query(&request, "offset").unwrap().parse().unwrap();
        let page: Value =
            (offset..(offset + 1000).min(1500)).map(|n| json!({ "uuid": n.to_string() })).collect();
        Ok(answer(200, &page))
    });
    let wanted = ServerQuery { setup: Some(true), sysinfo: true, ..ServerQuery::default() };
    let servers = Cnapi::new(script.http()).list_servers(&wanted).await.unwrap();
    assert_eq!(servers.len(), 1500);
    assert_eq!(script.targets()[0], "/servers?setup=true&extras=sysinfo&limit=1000&offset=0");
    let same = Script::new(|_| async {
        let page: Value = (0..1000).map(|n| json!({ "uuid": n.to_string() })).collect();
        Ok(answer(200, &page))
    });
    let endless = Cnapi::new(same.http()).list_servers(&wanted).await.unwrap_err();
    assert_eq!((endless.class(), same.count()), (Class::Protocol, 2));
}

#[test]
fn a_servers_sysinfo_says_where_it_listens_and_what_it_offers() {
    let server = json!({ "uuid": "s", "sysinfo": {
        "CPU Type": "Some CPU",
        "Network Interfaces": {
            "net0": { "ip4addr": "", "NIC Names": ["admin"] },
            "net1": { "ip4addr": "10.0.0.9", "NIC Names": ["admin", "external"] },
            "net2": { "ip4addr": "10.1.0.9", "NIC Names": ["external"] },
        },
        "Virtual Network Interfaces": { "u0": { "Overlay Nic Tags": ["sdc_overlay"] } },
    }});
    let server: Server = serde_json::from_value(server).unwrap();
    assert_eq!(server.admin_ip(), Some("10.0.0.9".parse().unwrap()));
    assert_eq!(server.nic_tags(), ["admin", "external", "sdc_overlay"]);
    assert_eq!(server.sysinfo_text("CPU Type"), Some("Some CPU"));
    let bare: Server = serde_json::from_value(json!({ "uuid": "s" })).unwrap();
    assert_eq!((bare.admin_ip(), bare.nic_tags().len()), (None, 0));
}

#[tokio::test]
async fn an_address_is_reserved_under_its_etag() {
    let script = Script::new(|_| async {
        let body =
            json!({ "ip": "10.88.88.7", "reserved": true, "free": false, "network_uuid": "n" });
        let mut reply = answer(200, &body);
        reply.headers.insert("etag", "\"2\"".parse().unwrap());
        Ok(reply)
    });
    let napi = Napi::new(script.http());
    let ip = "10.88.88.7".parse().unwrap();
    let read = napi.get_ip("n", ip).await.unwrap();
    let update = IpUpdate { reserved: Some(true) };
    let etag = Precondition::IfMatch(read.etag.unwrap());
    let written = napi.update_ip("n", ip, &update, etag).await.unwrap();
    assert!(written.value.reserved);
    assert_eq!(script.targets(), ["/networks/n/ips/10.88.88.7"; 2]);
    let another = napi.get_ip("n", "10.88.88.8".parse().unwrap()).await.unwrap_err();
    assert_eq!(another.class(), Class::Protocol);
    let log = script.log.lock().unwrap();
    let (_, put) = &log[1];
    assert_eq!(put.headers["if-match"], "\"2\"");
    assert_eq!(put.body.as_deref(), Some(br#"{"reserved":true}"#.as_slice()));
}

#[test]
fn cnapi_as_recorded() {
    let (mut tickets, mut tasks, mut allocations) = (0, 0, 0);
    for name in ["vmapi-peer-calls.jsonl", "volapi-peer-calls.jsonl"] {
        for line in recordings::text(name).unwrap().lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            for call in line["calls"].as_array().into_iter().flatten() {
                let (url, body) = (call["url"].as_str().unwrap(), &call["response"]);
                if call["peer"] != "cnapi" || call["status"] != 200 {
                    continue;
                }
                if url.starts_with("/tickets/") {
                    let ticket: Ticket = serde_json::from_value(body.clone()).unwrap();
                    assert_eq!(ticket.is_active(), ticket.status == "active");
                    assert_eq!(&serde_json::to_value(&ticket).unwrap(), body);
                    tickets += 1;
                } else if url.starts_with("/tasks/") {
                    let task: Task = serde_json::from_value(body.clone()).unwrap();
                    assert_ne!(task.is_complete(), task.is_failed());
                    assert_eq!(task.error().is_some(), body.to_string().contains("\"error\""));
                    assert_eq!(&serde_json::to_value(&task).unwrap(), body);
                    tasks += 1;
                } else if url == "/allocate" {
                    let chosen: Allocation = serde_json::from_value(body.clone()).unwrap();
                    assert!(chosen.server.nic_tags().contains(&"sdc_overlay"));
                    let sent: Vec<&String> = call["body"].as_object().unwrap().keys().collect();
                    let ours = serde_json::to_value(Placement {
                        image: Some(Map::new()),
                        package: Some(Map::new()),
                        ..Placement::default()
                    });
                    let ours = ours.unwrap();
                    assert_eq!(ours.as_object().unwrap().keys().collect::<Vec<_>>(), sent);
                    allocations += 1;
                }
            }
        }
    }
    assert!(tickets > 0 && tasks > 0 && allocations > 0, "{tickets} {tasks} {allocations}");
}
