// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mock CNAPI under paused time, through the client of `sdc-clients`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mocks::cnapi::{Order, Store};
use mocks::faults::{Action, Rule};
use mocks::transport::InProcess;
use sdc_clients::cnapi::{Cnapi, DEFAULT_SERVER, Placement, Ticket, TicketOrder};
use sdc_clients::http::Call;
use sdc_clients::{Class, Http};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

const CN: &str = "c0000000-0000-4000-8000-000000000001";
const VM: &str = "40000000-0000-4000-8000-000000000001";
const NOW: i64 = 1_800_000_000_000;

fn client(store: &Store) -> Cnapi {
    let transport = Arc::new(InProcess::new(store.clone()));
    Cnapi::new(Http::with_transport("http://cnapi.sim", "test/1", transport).unwrap())
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

/// What creates a VM.
fn created(brand: &str) -> Map<String, Value> {
    let files = json!([{ "compression": "gzip", "size": 1, "sha1": "" }]);
    object(
        &json!({ "uuid": VM, "brand": brand, "image_uuid": CN, "image": { "uuid": CN, "files": files } }),
    )
}

fn order(seconds: i64) -> TicketOrder {
    let at = jiff::Timestamp::from_millisecond(NOW + seconds * 1000).unwrap();
    TicketOrder {
        scope: "vm".into(),
        id: VM.into(),
        expires_at: at,
        action: Some("migrate".into()),
        extra: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_ticket_waits_for_the_release_or_the_expiry_of_the_first() {
    let cnapi = client(&Store::at(NOW));
    let take = async |seconds| cnapi.create_ticket(DEFAULT_SERVER, &order(seconds)).await.unwrap();
    let (first, second, third) = (take(600).await, take(900).await, take(3600).await);
    cnapi.wait_ticket(&first, Duration::from_secs(1)).await.unwrap();
    let late = cnapi.wait_ticket(&second, Duration::from_secs(30)).await.unwrap_err();
    assert!(late.is_timeout(), "{late}");
    let release = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        cnapi.release_ticket(&first).await.unwrap();
    };
    let began = Instant::now();
    let wait = cnapi.wait_ticket(&second, Duration::from_secs(60));
    assert_eq!(tokio::join!(wait, release).0.map_err(|e| e.class()), Ok(()));
    assert_eq!(began.elapsed(), Duration::from_secs(5));
    assert!(cnapi.get_ticket(&second).await.unwrap().is_active());
    // Nobody releases the second one: it expires 900 s after the start.
    cnapi.wait_ticket(&third, Duration::from_secs(1200)).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(901), "{:?}", began.elapsed());
    assert_eq!(cnapi.get_ticket(&second).await.unwrap().status, "expired");
    let status: Vec<String> =
        cnapi.list_tickets(DEFAULT_SERVER).await.unwrap().into_iter().map(|it| it.status).collect();
    assert_eq!(status, ["finished", "expired", "active"]);
    assert!(cnapi.release_ticket(VM).await.unwrap_err().is_not_found_resource());
    let unknown = cnapi.wait_ticket(VM, Duration::from_secs(1)).await.unwrap_err();
    assert!(unknown.is_not_found_resource());
}

#[tokio::test(start_paused = true)]
async fn tasks_are_carried_out_by_the_callers_function() {
    let store = Store::at(NOW);
    store.put_server(object(&json!({ "uuid": CN, "sysinfo": {} })));
    let orders: Arc<Mutex<Vec<Order>>> = Arc::default();
    let seen = Arc::clone(&orders);
    store.set_hands(Arc::new(move |order: Order| {
        seen.lock().unwrap().push(order.clone());
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            match order.verb.as_str() {
                "load" => Ok(json!({ "uuid": order.vm_uuid, "state": "running" })),
                "create" => Ok(json!({ "vm": order.body })),
                _ => Err("VM is busy".into()),
            }
        })
    }));
    let cnapi = client(&store);
    let wait = Duration::from_secs(600);
    let task = cnapi.create_vm(CN, &created("lx")).await.unwrap();
    assert_eq!(cnapi.get_task(&task).await.unwrap().status, "active");
    let late = cnapi.wait_task(&task, Duration::from_secs(10)).await.unwrap();
    assert!(late.is_active(), "that it goes on is no failure");
    let done = cnapi.wait_task(&task, wait).await.unwrap();
    assert_eq!(done.event("finish").unwrap()["vm"]["brand"], "lx");
    let task = cnapi.delete_vm(CN, VM, true).await.unwrap();
    assert_eq!(cnapi.wait_task(&task, wait).await.unwrap().error(), Some("VM is busy"));
    // A read has the client's usual deadline, so it must not take a minute.
    let slow = cnapi.get_vm(CN, VM, false).await.unwrap_err();
    assert!(slow.is_timeout(), "{slow}");
    let orders = orders.lock().unwrap();
    let told: Vec<_> = orders.iter().map(|it| (&*it.verb, &*it.vm_uuid)).take(3).collect();
    assert_eq!(told, [("create", VM), ("delete", VM), ("load", VM)]);
    assert_eq!(orders[1].params["include_dni"], "true");
}

#[tokio::test(start_paused = true)] // CN13
async fn tasks_fail_and_hang_by_rule() {
    let store = Store::at(NOW);
    store.put_server(object(&json!({ "uuid": CN })));
    let cnapi = client(&store);
    let delete = async || cnapi.delete_vm(CN, VM, true).await.unwrap();
    let fail = Action::FailTask { message: "no room".into() };
    store.faults().add(Rule::new("DELETE", "/servers/*", fail).times(1));
    store.faults().add(Rule::new("DELETE", "/servers/*", Action::HangTask).after(1).times(1));
    let (failed, hung, fine) = (delete().await, delete().await, delete().await);
    let wait = Duration::from_secs(900);
    assert_eq!(cnapi.wait_task(&failed, wait).await.unwrap().error(), Some("no room"));
    assert!(cnapi.wait_task(&hung, wait).await.unwrap().is_active());
    assert!(cnapi.wait_task(&fine, wait).await.unwrap().is_complete());
    assert!(cnapi.wait_task("nope", wait).await.unwrap_err().is_not_found_resource());
    assert!(cnapi.delete_vm(VM, VM, true).await.unwrap_err().is_not_found_resource());
}

#[tokio::test]
async fn a_node_is_found_by_its_sysinfo_and_chosen_where_the_vm_fits() {
    let store = Store::at(NOW);
    let nics =
        json!({ "net0": { "ip4addr": "10.99.99.7", "NIC Names": ["admin"], "Link Status": "up" } });
    let sysinfo = json!({ "UUID": CN, "Hostname": "cn7", "CPU Type": "X", "Live Image": "20260101T000000Z", "Network Interfaces": nics });
    store.put_sysinfo(&object(&sysinfo));
    let cnapi = client(&store);
    let server = cnapi.get_server(CN).await.unwrap();
    let address = server.admin_ip().map(|ip| ip.to_string());
    assert_eq!((address.as_deref(), server.hostname.as_deref()), (Some("10.99.99.7"), Some("cn7")));
    assert_eq!(server.current_platform.as_deref(), Some("20260101T000000Z"));
    assert_eq!(server.sysinfo_text("CPU Type"), Some("X"));
    let vm = json!({ "vm_uuid": VM, "owner_uuid": CN, "ram": 1024, "brand": "joyent" });
    let mut wanted = Placement {
        vm: object(&vm),
        image: Some(created("joyent").remove("image").map(|it| object(&it)).unwrap_or_default()),
        nic_tag_requirements: vec![vec!["admin".into()]],
        ..Placement::default()
    };
    assert_eq!(cnapi.allocate(&wanted).await.unwrap().server.uuid, CN);
    for reserved in [true, false] {
        cnapi.update_server(CN, &object(&json!({ "reserved": reserved }))).await.unwrap();
        assert_eq!(cnapi.get_server(CN).await.unwrap().reserved, Some(reserved));
        assert_eq!(cnapi.allocate(&wanted).await.is_err(), reserved);
    }
    let (unknown, nothing) = ("00000000-0000-4000-8000-000000000000", object(&json!({})));
    let refused = cnapi.update_server(unknown, &nothing).await.unwrap_err();
    assert_eq!(refused.status(), Some(404));
    wanted.nic_tag_requirements.push(vec!["external".into()]);
    let refused = cnapi.allocate(&wanted).await.unwrap_err();
    assert_eq!(
        (refused.class(), refused.message()),
        (
            Class::Conflict,
            "No compute resources available: no servers supporting required NIC Tags"
        )
    );
}

#[tokio::test]
async fn placement_looks_at_encryption_at_dockers_volumes_and_at_vms_of_the_owner() {
    const OTHER: &str = "c0000000-0000-4000-8000-000000000002";
    const BESIDE: &str = "40000000-0000-4000-8000-000000000002";
    let store = Store::at(NOW);
    for (cn, is_encrypted) in [(CN, false), (OTHER, true)] {
        store.put_server(object(
            &json!({ "uuid": cn, "sysinfo": { "Zpool Encrypted": is_encrypted } }),
        ));
    }
    let volumes = json!([BESIDE]).to_string();
    let owned = |uuid: &str| json!({ "uuid": BESIDE, "server_uuid": CN, "owner_uuid": uuid, "state": "running" });
    let far = json!({ "locality": { "far": BESIDE, "strict": true } });
    let encrypted = "no servers which are zpool encrypted";
    let nobody = json!({ "vms": [] });
    for (vms, more, among, want) in [
        (nobody.clone(), json!({}), OTHER, Err(encrypted)),
        (nobody.clone(), json!({ "internal_metadata": { "encrypted": true } }), CN, Err(encrypted)),
        (nobody.clone(), json!({ "internal_metadata": { "encrypted": true } }), OTHER, Ok(())),
        (
            nobody.clone(),
            json!({ "docker": true, "internal_metadata": { "docker:volumesfrom": volumes } }),
            CN,
            Err("no servers containing VMs required for volumesfrom"),
        ),
        (
            json!({ "vms": [owned(CN)] }),
            json!({ "docker": true, "internal_metadata": { "docker:volumesfrom": volumes } }),
            CN,
            Ok(()),
        ),
        (
            json!({ "vms": [owned(CN)] }),
            far.clone(),
            CN,
            Err("no servers with requested hard locality considered"),
        ),
        (json!({ "vms": [owned(OTHER)] }), far, CN, Ok(())),
    ] {
        let known: Vec<_> = vms["vms"].as_array().unwrap().iter().map(object).collect();
        store.set_vms(Arc::new(move || Some(known.clone())));
        let mut vm = json!({ "vm_uuid": VM, "owner_uuid": CN, "ram": 1024, "brand": "joyent" });
        vm.as_object_mut().unwrap().extend(object(&more));
        let wanted = Placement {
            vm: object(&vm),
            image: Some(
                created("joyent").remove("image").map(|it| object(&it)).unwrap_or_default(),
            ),
            servers: vec![among.into()],
            ..Placement::default()
        };
        let got = client(&store).allocate(&wanted).await.map(drop);
        let got =
            got.map_err(|error| error.message().replace("No compute resources available: ", ""));
        assert_eq!(got.as_ref().copied().map_err(String::as_str), want, "{more} on {among}");
    }
}

#[tokio::test(start_paused = true)] // CN2
async fn a_request_that_ends_the_process_ends_all_and_it_is_down_until_it_is_started_again() {
    let store = Store::at(NOW);
    store.put_server(object(&json!({ "uuid": CN })));
    let cnapi = client(&store);
    let held = cnapi.create_ticket(DEFAULT_SERVER, &order(600)).await.unwrap();
    let queued = cnapi.create_ticket(DEFAULT_SERVER, &order(600)).await.unwrap();
    let waits = cnapi.wait_ticket(&queued, Duration::from_secs(60));
    let without_image = object(&json!({ "uuid": VM, "brand": "lx" }));
    let dies = cnapi.create_vm(CN, &without_image);
    let (waited, died) = tokio::join!(waits, dies);
    assert!(died.unwrap_err().may_have_applied());
    assert!(waited.is_err(), "the wait is lost");
    assert!(cnapi.ping().await.is_err(), "it is down");
    store.restart();
    assert_eq!((cnapi.ping().await.is_ok(), store.deaths()), (true, 1));
    assert!(cnapi.get_ticket(&held).await.unwrap().is_active(), "the queue is intact");
}

#[tokio::test(start_paused = true)] // CN3
async fn an_update_that_another_write_came_before_is_tried_again() {
    let store = Store::at(NOW);
    store.put_server(object(&json!({ "uuid": CN })));
    store.faults().add(Rule::new("POST", "/servers/*", Action::ChangeRow).times(1));
    let change = object(&json!({ "reserved": true }));
    client(&store).update_server(CN, &change).await.unwrap();
    assert_eq!(client(&store).get_server(CN).await.unwrap().reserved, Some(true));
}

#[tokio::test] // CN6
async fn the_newest_of_more_than_a_thousand_tickets_is_listed() {
    let store = Store::at(NOW);
    let cnapi = client(&store);
    let mut made = Vec::new();
    for n in 0..1005 {
        let order = TicketOrder { id: n.to_string(), ..order(600) };
        made.push(cnapi.create_ticket(DEFAULT_SERVER, &order).await.unwrap());
    }
    cnapi.release_ticket(&made[0]).await.unwrap();
    let http = Http::with_transport("http://cnapi", "test/1", Arc::new(InProcess::new(store)));
    let page = http.unwrap().execute(Call::get(&["servers", DEFAULT_SERVER, "tickets"])).await;
    let page: Vec<Ticket> = page.unwrap().json("tickets").unwrap();
    assert_eq!(page.len(), 1000, "one page has the oldest only");
    let all = cnapi.list_tickets(DEFAULT_SERVER).await.unwrap();
    let found: Vec<&String> = all.iter().map(|ticket| &ticket.uuid).collect();
    assert_eq!(found, made.iter().collect::<Vec<_>>());
    assert_eq!(all[0].status, "finished");
}
