// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the recordings do not show: that nothing else is written, and a storage that fails in between.

use bytes::Bytes;
use http::{Method, Request};
use serde_json::{Value, json};

use super::store::Store;
use crate::faults::{Action, Mock, Reply, Rule};

const CN: &str = "00000000-0000-4000-8000-0000000000c1";
const OTHER_CN: &str = "00000000-0000-4000-8000-0000000000c2";
const KEPT: &str = "40000000-0000-4000-8000-000000000001";
const CHANGED: &str = "40000000-0000-4000-8000-000000000002";
const ELSEWHERE: &str = "40000000-0000-4000-8000-000000000003";
const NEW: &str = "40000000-0000-4000-8000-000000000004";

async fn ask(store: &Store, method: Method, target: &str, body: Option<&Value>) -> (u16, Value) {
    let request = Request::builder().method(method).uri(target);
    let request = match body {
        Some(body) => {
            let json = request.header("content-type", "application/json; charset=utf-8");
            json.body(Bytes::from(body.to_string()))
        }
        None => request.body(Bytes::new()),
    };
    let Reply::Full(response) = store.handle(request.unwrap()).await else {
        return (0, json!(null));
    };
    let status = response.status().as_u16();
    (status, serde_json::from_slice(response.body()).unwrap_or_default())
}

async fn put(store: &Store, target: &str, body: &Value) -> (u16, Value) {
    ask(store, Method::PUT, target, Some(body)).await
}

fn store() -> Store {
    let store = Store::default();
    store.set(KEPT, "running", Some(CN));
    store.set(CHANGED, "running", Some(CN));
    store.set(ELSEWHERE, "running", Some(OTHER_CN));
    store
}

fn all_of_node() -> String {
    format!("/vms?server_uuid={CN}")
}

#[tokio::test] // A16
async fn a_put_of_a_map_writes_its_vms_and_no_other() {
    let store = store();
    let untouched = [store.get(KEPT), store.get(ELSEWHERE)];
    let vms = json!({
        CHANGED: {"uuid": CHANGED, "state": "stopped", "server_uuid": OTHER_CN},
        NEW: {"uuid": NEW, "state": "destroyed"},
    });
    assert_eq!(put(&store, &all_of_node(), &json!({"vms": vms})).await, (200, Value::Null));
    assert_eq!([store.get(KEPT), store.get(ELSEWHERE)], untouched);
    // As sent: neither the server of the query nor a time is added.
    let changed = json!({"uuid": CHANGED, "state": "stopped", "server_uuid": OTHER_CN, "tags": {}});
    assert_eq!(store.get(CHANGED).as_ref(), changed.as_object());
    let new = json!({"uuid": NEW, "state": "destroyed", "tags": {}});
    assert_eq!(store.get(NEW).as_ref(), new.as_object());
    assert_eq!(put(&store, &all_of_node(), &json!({"vms": {}})).await.0, 200);
    assert_eq!(store.all().len(), 4);
}

#[tokio::test] // A16
async fn a_put_of_a_map_is_refused_before_anything_is_written() {
    let store = store();
    let before = store.all();
    let vms = json!({"vms": {KEPT: {"uuid": KEPT, "state": "destroyed"}}});
    let (status, answer) = put(&store, "/vms", &vms).await;
    let missing = json!([{"field": "server_uuid", "code": "MissingParameter"}]);
    assert_eq!((status, &answer["errors"]), (409, &missing));
    store.peers().workflow = false;
    for target in [all_of_node(), format!("/vms/{KEPT}")] {
        let (status, answer) = put(&store, &target, &vms).await;
        assert_eq!((status, &answer["code"]), (503, &json!("ServiceUnavailableError")), "{target}");
    }
    store.peers().workflow = true;
    store.peers().storage = false;
    assert_eq!(put(&store, &all_of_node(), &vms).await.0, 500);
    assert_eq!(store.all(), before);
}

#[tokio::test] // A16
async fn a_put_of_a_map_that_fails_in_between_leaves_what_it_has_written() {
    let store = store();
    let vms = json!({"vms": {
        CHANGED: {"uuid": CHANGED, "state": "stopped"},
        KEPT: {"uuid": KEPT, "state": "stopped"},
    }});
    store.faults().add(Rule::new("PUT", "/vms", Action::FailWrite { after: 1 }).times(1));
    let (status, answer) = put(&store, &all_of_node(), &vms).await;
    assert_eq!((status, answer["message"].is_string()), (500, true));
    let state = |uuid| store.get(uuid).unwrap()["state"].clone();
    assert_eq!((state(CHANGED), state(KEPT)), (json!("stopped"), json!("running")));
    assert_eq!(put(&store, &all_of_node(), &vms).await.0, 200);
    assert_eq!(state(KEPT), json!("stopped"));
}

#[tokio::test] // A16
async fn an_entry_of_the_map_without_a_uuid_is_written_and_ends_the_process() {
    let store = store();
    let vms = json!({"vms": {KEPT: {"alias": "sparse"}, CHANGED: {"uuid": CHANGED}}});
    assert_eq!(put(&store, &all_of_node(), &vms).await.0, 0, "the connection closes");
    assert!(store.get(KEPT).is_none(), "the record has no uuid");
    assert_eq!(store.get(CHANGED).unwrap()["state"], "running", "later ones are not written");
}

#[tokio::test] // A17
async fn a_put_of_one_vm_replaces_its_record() {
    let store = store();
    let target = format!("/vms/{KEPT}");
    let sent =
        json!({"alias": "a", "state": "destroyed", "quota": null, "zoneid": 4, "destroyed": "x"});
    let (status, vm) = put(&store, &target, &sent).await;
    assert_eq!((status, &vm["zone_state"]), (200, &json!("destroyed")));
    assert!(vm["destroyed"].as_str().is_some_and(|at| at.ends_with('Z')), "{vm}");
    assert_eq!(store.get(KEPT).as_ref(), vm.as_object());
    let names: Vec<&str> = vm.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["uuid", "alias", "destroyed", "state", "tags", "zone_state"]);
    let (_, shown) = ask(&store, Method::GET, &target, None).await;
    assert_eq!((&shown["quota"], &shown["nics"]), (&Value::Null, &json!([])));
    // Without a content type nothing of the body is seen.
    let plain = Request::put(&target).body(Bytes::from(sent.to_string())).unwrap();
    assert!(matches!(store.handle(plain).await, Reply::Full(answer) if answer.status() == 200));
    assert_eq!(store.get(KEPT).as_ref(), json!({"uuid": KEPT, "tags": {}}).as_object());
}

#[tokio::test] // A18
async fn active_vms_are_those_that_are_neither_destroyed_nor_failed() {
    let store = store();
    store.set(NEW, "provisioning", Some(CN));
    for (uuid, state) in [(KEPT, "destroyed"), (CHANGED, "failed")] {
        store.set(uuid, state, Some(CN));
    }
    put(&store, &format!("/vms/{ELSEWHERE}"), &json!({"server_uuid": CN})).await;
    let target = format!("{}&state=active&fields=uuid", all_of_node());
    let (_, listed) = ask(&store, Method::GET, &target, None).await;
    assert_eq!(listed, json!([{"uuid": NEW}, {"uuid": ELSEWHERE}]), "one without a state counts");
    let (status, _) = ask(&store, Method::GET, "/vms?state=provisioning", None).await;
    assert_eq!(status, 409);
}

#[tokio::test] // A20
async fn the_maps_of_a_vm_are_changed_by_jobs() {
    let (store, jobs) = (store(), crate::workflow::Store::default());
    store.keep_jobs(jobs.clone());
    let tags = format!("/vms/{KEPT}/tags");
    assert_eq!(ask(&store, Method::GET, &tags, None).await, (200, json!({})));
    let (status, started) = ask(&store, Method::POST, &tags, Some(&json!({"role": "web"}))).await;
    assert_eq!((status, &started["vm_uuid"]), (202, &json!(KEPT)));
    assert_eq!(jobs.newest().unwrap()["name"], "update");
    assert_eq!(ask(&store, Method::GET, &tags, None).await, (200, json!({})), "not yet");
    let told = json!({"uuid": KEPT, "tags": {"role": "web"}});
    assert_eq!(put(&store, &format!("/vms/{KEPT}"), &told).await.0, 200);
    assert_eq!(ask(&store, Method::GET, &format!("{tags}/role"), None).await, (200, json!("web")));
    let wrong = json!({"root_pw": "x", "list": []});
    let (status, said) =
        ask(&store, Method::PUT, &format!("/vms/{KEPT}/customer_metadata"), Some(&wrong)).await;
    assert_eq!((status, &said["errors"][0]["message"]), (409, &json!("Forbidden Metadata Key")));
    for (method, at, status) in [
        (Method::GET, format!("{tags}/nope"), 404),
        (Method::DELETE, format!("{tags}/nope"), 404),
        (Method::DELETE, format!("{tags}/role"), 202),
        (Method::DELETE, tags.clone(), 202),
        (Method::GET, format!("/vms/{KEPT}/nope"), 404),
        (Method::GET, format!("/vms/{NEW}/tags"), 404),
    ] {
        assert_eq!(ask(&store, method, &at, None).await.0, status, "{at}");
    }
}

#[tokio::test] // A20
async fn the_roles_of_a_vm_are_kept_at_once() {
    let store = store();
    let at = format!("/vms/{KEPT}/role_tags");
    let roles = |all: &[&str]| json!({ "role_tags": all });
    let (a, b) = (CN, OTHER_CN);
    assert_eq!(ask(&store, Method::POST, &at, Some(&roles(&[a]))).await, (200, json!([a])));
    assert_eq!(ask(&store, Method::POST, &at, Some(&roles(&[b, a]))).await, (200, json!([a, b])));
    let shown = format!("/vms/{KEPT}?fields=uuid,role_tags");
    assert_eq!(ask(&store, Method::GET, &shown, None).await.1["role_tags"], json!([a, b]));
    assert_eq!(ask(&store, Method::DELETE, &format!("{at}/{a}"), None).await, (200, json!([b])));
    assert_eq!(ask(&store, Method::PUT, &at, Some(&roles(&[a]))).await, (200, json!([a])));
    assert_eq!(ask(&store, Method::PUT, &at, Some(&roles(&["x"]))).await.0, 409);
    assert_eq!(ask(&store, Method::DELETE, &at, None).await.0, 200);
    assert_eq!(ask(&store, Method::GET, &at, None).await.0, 404, "there is no such route");
}

#[tokio::test] // A21
async fn parameters_are_read_as_loosely_as_the_service_reads_them() {
    let store = store();
    for (query, want) in [
        ("limit=1e3", Some(1)),
        ("limit=2.9", Some(2)),
        ("limit=2&limit=1", Some(2)),
        ("limit=x2", None),
        ("state=running&state=stopped", None),
        ("fields=uuid&fields=alias", Some(3)),
    ] {
        let (status, vms) = ask(&store, Method::GET, &format!("/vms?{query}"), None).await;
        let count = vms.as_array().map(Vec::len);
        assert_eq!((status == 200, count), (want.is_some(), want), "{query}");
    }
}

#[tokio::test] // A23
async fn filters_hold_one_another_as_deep_as_they_are_given() {
    let store = store();
    for (uuid, alias) in [(KEPT, "web1"), (CHANGED, "web2"), (ELSEWHERE, "db")] {
        let vm =
            json!({"alias": alias, "state": "running", "server_uuid": CN, "tags": {"role": alias}});
        put(&store, &format!("/vms/{uuid}"), &vm).await;
    }
    let encoded =
        |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let deep = format!("{}(alias=db){}", "(!".repeat(200), ")".repeat(200));
    for (name, text, wanted) in [
        (
            "query",
            "(&(state=running)(|(alias=db)(&(alias=web*)(!(alias=web1)))))",
            Ok(vec!["db", "web2"]),
        ),
        ("query", "(!(|(tag.role=db)(alias=web2)))", Ok(vec!["web1"])),
        (
            "predicate",
            r#"{"and": [{"or": [{"eq": ["alias", "db"]}, {"ne": ["tag.role", "web1"]}]}, {"ne": ["alias", "web2"]}]}"#,
            Ok(vec!["db"]),
        ),
        (
            "query",
            "(&(state=running)(!(foo=x)))",
            Err("(&(state=running)(!(foo=x))) is an invalid filter"),
        ),
        (
            "predicate",
            r#"{"or": [{"eq": ["alias", "db"]}, {"and": [{"gt": ["ram", 5]}]}]}"#,
            Err("(|(alias=db)(&(max_physical_memory>5))) is an invalid filter"),
        ),
        ("query", "(&(state=running)", Err("(&(state=running) is an invalid filter")),
        (
            "query",
            "(state=running)(alias=db)",
            Err("(state=running)(alias=db) is an invalid filter"),
        ),
        ("query", &deep, Err("is an invalid filter")),
        (
            "predicate",
            r#"{"and": [{"eq": ["alias", "db"]}, {"like": []}]}"#,
            Err("Invalid Parameters"),
        ),
    ] {
        let target = format!("/vms?fields=alias&sort=alias&{name}={}", encoded(text));
        let (status, answer) = ask(&store, Method::GET, &target, None).await;
        match wanted {
            Ok(aliases) => {
                let wanted: Vec<Value> =
                    aliases.iter().map(|alias| json!({ "alias": alias })).collect();
                assert_eq!((status, answer), (200, json!(wanted)), "{text}");
            }
            Err(ending) => {
                let said = answer["message"].as_str().unwrap_or_default();
                assert!(status >= 409 && said.ends_with(ending), "{text}: {answer}");
            }
        }
    }
    // Several conditions are one filter, and a condition with a key is an object, which no value is.
    let (_, answer) =
        ask(&store, Method::GET, "/vms?alias=db&predicate=%7B%22eq%22:[%22foo%22,1]%7D", None)
            .await;
    let said = answer["message"].as_str().unwrap_or_default();
    assert!(said.ends_with("(&(alias=db)(foo=1)) is an invalid filter"), "{answer}");
    for (query, status) in
        [("state[]=running", 200), ("state[a]=running", 409), ("limit[a]=1", 409)]
    {
        assert_eq!(
            ask(&store, Method::GET, &format!("/vms?{query}"), None).await.0,
            status,
            "{query}"
        );
    }
}

#[tokio::test] // A22
async fn what_a_put_takes_from_where() {
    let store = store();
    let target = format!("/vms/{KEPT}?alias=query&state=stopped");
    let (_, vm) = put(&store, &target, &json!({"alias": "body"})).await;
    assert_eq!((&vm["alias"], &vm["state"]), (&json!("body"), &json!("stopped")));
    let node = all_of_node();
    for (vms, status) in
        [(json!(7), 200), (json!(true), 200), (json!([]), 200), (json!([1]), 0), (json!("x"), 0)]
    {
        assert_eq!(put(&store, &node, &json!({ "vms": vms })).await.0, status, "{vms}");
    }
}

#[tokio::test] // A22
async fn a_list_as_the_body_takes_the_place_of_the_uuid_in_the_path() {
    let store = store();
    let target = format!("/vms/{ELSEWHERE}?uuid={KEPT}");
    let (status, ordered) = ask(&store, Method::DELETE, &target, Some(&json!([]))).await;
    assert_eq!((status, &ordered["vm_uuid"]), (202, &json!(KEPT)));
    let (status, ordered) = ask(&store, Method::DELETE, &target, Some(&json!({}))).await;
    assert_eq!((status, &ordered["vm_uuid"]), (202, &json!(ELSEWHERE)));
    let (status, _) = ask(&store, Method::DELETE, &format!("/vms/{KEPT}"), Some(&json!([]))).await;
    assert_eq!(status, 409);
}

#[tokio::test]
async fn jobs_are_listed_and_the_changefeed_has_a_version_of_its_own() {
    let (store, jobs) = (store(), crate::workflow::Store::default());
    let hands = |_| -> futures_util::future::BoxFuture<'static, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    };
    store.run_jobs(jobs, std::sync::Arc::new(hands));
    let get = async |target: &str| ask(&store, Method::GET, target, None).await;
    let update = json!({"alias": "web"});
    let act = |vm: &str| format!("/vms/{vm}?action=update");
    let (status, told) = ask(&store, Method::POST, &act(KEPT), Some(&update)).await;
    assert_eq!(ask(&store, Method::POST, &act(ELSEWHERE), Some(&update)).await.0, 202);
    let job = told["job_uuid"].clone();
    assert_eq!((status, get(&format!("/jobs/{}", job.as_str().unwrap())).await.0), (202, 200));
    assert_eq!(get("/jobs/nonsense").await.0, 404);
    for (target, count) in [
        ("/jobs".to_owned(), 2),
        (format!("/jobs?vm_uuid={KEPT}&task=update"), 1),
        (format!("/jobs?vm_uuid={KEPT}&task=reboot"), 0),
        (format!("/vms/{KEPT}/jobs"), 1),
    ] {
        let (status, listed) = get(&target).await;
        assert_eq!((status, listed.as_array().map(Vec::len)), (200, Some(count)), "{target}");
    }
    for (target, status) in [("/changefeeds", 200), ("/vms", 400)] {
        let request = Request::get(target).header("accept-version", "~1").body(Bytes::new());
        let Reply::Full(response) = store.handle(request.unwrap()).await else { panic!() };
        assert_eq!(response.status().as_u16(), status, "{target}");
    }
}
