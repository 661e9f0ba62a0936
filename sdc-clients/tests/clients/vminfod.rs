// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! vminfod: the plain requests, and the records of the stream as types.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use pretty_assertions::assert_eq;
use sdc_clients::Class;
use sdc_clients::vminfod::{Action, Change, Record, View, Vminfod, parse_line, parse_ready};
use serde_json::{Value, json};

use crate::script::serve;

#[tokio::test]
async fn the_nodes_uuid_is_read_from_sysinfo_with_and_without_its_age() {
    let uuid = "f7a1c3a2-0a51-4b3f-8f1e-8f4d1c6a0b11";
    let bare: Value = json!({"UUID": uuid});
    for sysinfo in [json!({"sysinfo": bare.clone(), "age_ms": 5}), bare] {
        let text = sysinfo.to_string();
        let router = Router::new().route("/sysinfo", get(move || async move { text }));
        let vminfod = Vminfod::new(&serve(router).await, "test/1").unwrap();
        assert_eq!(vminfod.node_uuid().await.unwrap().as_deref(), Some(uuid), "{sysinfo}");
    }
}

#[tokio::test]
async fn routes_and_their_absence() {
    let router = Router::new()
        .route("/ping", get(|| async { r#"{"ping":"pong"}"# }))
        .route("/status", get(|| async { r#"{"pid":1}"# }))
        .route(
            "/vms",
            get(|uri: axum::http::Uri| async move {
                let query = uri.query().unwrap_or_default().to_owned();
                let body = format!(r#"[{{"zonename":"z","b":1,"a":2,"query":"{query}"}}]"#);
                ([("vminfod-sync", query.replace("sync=", ""))], body)
            }),
        )
        .route("/vms/z", get(|| async { r#"{"zonename":"z"}"# }))
        .route("/vms/y", get(|| async { (StatusCode::NOT_FOUND, "VM Not Found: y") }))
        .route("/vms/page", get(|| async { (StatusCode::NOT_FOUND, "<html>Not Found</html>") }))
        .route("/vms/{other}", get(|| async { (StatusCode::NOT_FOUND, "VM Not Found: y") }))
        .fallback(|| async { (StatusCode::NOT_FOUND, "Unsupported URL Path") });
    let vminfod = Vminfod::new(&serve(router).await, "test/1").unwrap();
    vminfod.ping().await.unwrap();
    assert_eq!(vminfod.status().await.unwrap()["pid"], 1);
    let View { vms, incomplete } = vminfod.vms(false).await.unwrap();
    assert!(incomplete.is_nothing());
    let keys: Vec<&String> = vms[0].keys().collect();
    assert_eq!(keys, ["zonename", "b", "a", "query"], "the order of keys is kept");
    assert_eq!(vms[0]["query"], "");
    assert_eq!(vminfod.vms(true).await.unwrap().vms[0]["query"], "sync=true");
    assert_eq!(vminfod.zones().await.unwrap().vms[0]["query"], "sync=zones");
    assert_eq!(vminfod.vm("z", false).await.unwrap()["zonename"], "z");
    let missing = vminfod.vm("y", true).await.unwrap_err();
    assert!(missing.is_not_found_resource() && !missing.is_not_found_route());
    assert!(vminfod.sysinfo().await.unwrap_err().is_not_found_route());
    // The 404 of something in between, and one about another VM, say nothing about this one.
    for other in ["page", "x"] {
        let foreign = vminfod.vm(other, true).await.unwrap_err();
        assert_eq!((foreign.class(), foreign.status()), (Class::Protocol, Some(404)), "{foreign}");
    }
    // F138: an answer that does not say that it was read for its request is none, whichever daemon gave it.
    let old = vminfod.vm("z", true).await.unwrap_err();
    assert!(old.class() == Class::Protocol && old.message().contains("too old"), "{old}");
    // F69: a uuid is sent in lower case, a name as it is.
    let uuid = "A829C448-085B-4138-ADBC-583AC96881C3";
    for (asked, sent) in [(uuid, uuid.to_lowercase().as_str()), ("Zone-A", "Zone-A")] {
        let path = vminfod.vm(asked, true).await.unwrap_err().path().to_owned();
        assert_eq!(path, format!("/vms/{sent}?sync=true"));
    }
}

#[tokio::test] // F138
async fn a_404_of_a_service_that_does_not_know_sync_says_nothing() {
    let old = Router::new()
        .route("/vms", get(|| async { "[]" }))
        .fallback(|| async { (StatusCode::NOT_FOUND, "VM Not Found: y") });
    let vminfod = Vminfod::new(&serve(old).await, "test/1").unwrap();
    for error in [vminfod.vm("y", true).await.unwrap_err(), vminfod.zones().await.unwrap_err()] {
        assert!(error.class() == Class::Protocol && error.message().contains("too old"), "{error}");
    }
    assert!(vminfod.vm("y", false).await.unwrap_err().is_not_found_resource());
}

#[tokio::test] // F138
async fn a_service_is_reached_through_its_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hub.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let router = Router::new().route("/ping", get(|| async { r#"{"ping":"pong"}"# }));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Vminfod::new(&format!("unix:{}", path.display()), "test/1").unwrap().ping().await.unwrap();
    let absent = Vminfod::new("unix:/nonexistent/hub.sock", "test/1").unwrap();
    assert_eq!(absent.ping().await.unwrap_err().class(), Class::Connect);
}

#[tokio::test]
async fn an_absent_service_is_said_at_once() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = Vminfod::new(&base, "test/1").unwrap().ping().await.unwrap_err();
    assert_eq!((error.class(), error.attempts()), (Class::Connect, 1));
}

#[test]
fn change_records_print_as_shipped() {
    let text = concat!(
        r#"[{"prettyPath":"zoneid","path":["zoneid"],"action":"changed","oldValue":null,"newValue":17},"#,
        r#"{"prettyPath":"nics.*.ip","path":["nics",null,"ip"],"action":"changed","oldValue":"1","newValue":"2","ident":"02:a"},"#,
        r#"{"prettyPath":"pid","path":["pid"],"action":"added","newValue":null},"#,
        r#"{"prettyPath":"exit","path":["exit"],"action":"removed","oldValue":{"b":1,"a":2}}]"#,
    );
    let changes: Vec<Change> = serde_json::from_str(text).unwrap();
    assert_eq!(changes[0].old_value, Some(Value::Null));
    assert_eq!(changes[1].path[1], None);
    assert_eq!((changes[2].action, &changes[2].old_value), (Action::Added, &None));
    assert_eq!(serde_json::to_string(&changes).unwrap(), text);
}

#[test]
fn ready_is_read_in_three_forms() {
    let vm = json!({ "zonename": "z", "uuid": "u" });
    for vms in [
        json!([vm]),
        json!(json!([vm]).to_string()),
        json!({ "z": vm }),
        json!(json!({ "z": vm }).to_string()),
    ] {
        let line = json!({ "type": "ready", "date": "d", "uuid": "l", "vms": vms, "epoch": "e", "seq": 4 });
        let Record::Ready { vms, seq, epoch, uuid } =
            parse_line(line.to_string().as_bytes()).unwrap()
        else {
            panic!("not ready")
        };
        assert_eq!(
            (vms.len(), seq, epoch.as_deref(), uuid.as_deref()),
            (1, Some(4), Some("e"), Some("l"))
        );
    }
    for bad in
        [json!(null), json!(1), json!("x"), json!("1"), json!("\"[]\""), json!([1]), json!([{}])]
    {
        assert!(parse_ready(bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn bad_lines_are_errors() {
    for bad in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"type":"create"}"#,
        r#"{"type":"delete"}"#,
        r#"{"type":"ready"}"#,
        r#"{"type":"modify","zonename":"z"}"#,
        r#"{"type":"create","zonename":"z","vm":[]}"#,
    ] {
        assert!(parse_line(bad.as_bytes()).is_err(), "{bad}");
    }
    let odd = parse_line(br#"{"type":"resumed","extra":1}"#).unwrap();
    assert_eq!(odd, Record::Other("resumed".into()));
}
