// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The HTTP core: what goes out, and what comes back as which error.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request as Incoming;
use axum::response::IntoResponse;
use pretty_assertions::assert_eq;
use sdc_clients::http::{Call, HttpTransport, Precondition};
use sdc_clients::{Class, Http};
use serde_json::{Value, json};

use crate::script::{Script, answer, raw, serve};

pub fn method(name: &str) -> ::http::Method {
    name.parse().unwrap()
}

/// Echoes what it got.
fn echo() -> Router {
    Router::new().fallback(|request: Incoming| async move {
        let headers: serde_json::Map<String, Value> = request
            .headers()
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_str().unwrap().into()))
            .collect();
        let line = format!("{} {}", request.method(), request.uri());
        let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        axum::Json(json!({ "line": line, "headers": headers, "body": body }))
    })
}

#[tokio::test]
async fn requests_have_all_headers_and_no_empty_values() {
    let base = serve(echo()).await;
    let http = Http::new(&format!("{base}/prefix/"), "net-agent/1.0 server/x").unwrap();
    let call = Call::new(method("PUT"), &["a b", "x/y"])
        .query("set", 1)
        .query("empty", "")
        .query_opt("unset", None::<u32>)
        .query_list("list", &["a".into(), String::new(), "b".into()])
        .query_list("none", &[])
        .json(&json!({ "k": 1 }))
        .precondition(Precondition::IfMatch("A1b2-weird\"".into()));
    let seen = http.execute(call).await.unwrap().object().unwrap();
    assert_eq!(seen["line"], "PUT /prefix/a%20b/x%2Fy?set=1&list=a%2Cb");
    assert_eq!(seen["body"], r#"{"k":1}"#);
    let headers = &seen["headers"];
    assert_eq!(headers["accept"], "application/json");
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(headers["content-length"], "7");
    assert_eq!(headers["user-agent"], "net-agent/1.0 server/x");
    assert_eq!(headers["if-match"], "A1b2-weird\"");
    let id: uuid::Uuid = headers["x-request-id"].as_str().unwrap().parse().unwrap();
    assert_eq!(id.get_version_num(), 4);

    let bare = http.execute(Call::get(&["p"])).await.unwrap().object().unwrap();
    assert_eq!(bare["line"], "GET /prefix/p");
    assert!(bare["headers"].get("content-type").is_none());
    assert!(bare["headers"].get("if-match").is_none());
    assert_ne!(bare["headers"]["x-request-id"], headers["x-request-id"]);
}

#[tokio::test]
async fn dots_never_leave_their_path() {
    let script = Script::new(|_| async { Ok(answer(200, &json!({}))) });
    for segment in ["", ".", ".."] {
        let error = script.http().execute(Call::get(&["vms", segment])).await.unwrap_err();
        assert_eq!(error.class(), Class::Request);
    }
    assert_eq!(script.count(), 0);
    for base in ["not a url", "ftp://x", "file:///x"] {
        assert_eq!(Http::new(base, "a").unwrap_err().class(), Class::Request, "{base}");
    }
}

#[tokio::test]
async fn every_answer_has_its_class() {
    let no_route = json!({ "code": "ResourceNotFound", "message": "/search/nics does not exist" });
    let no_nic = json!({ "code": "ResourceNotFound", "message": "nic not found" });
    let cases: Vec<(u16, Value, Class, bool)> = vec![
        (304, json!(null), Class::NotModified, false),
        (302, json!(null), Class::Protocol, false),
        (400, json!({ "code": "InvalidVersion", "message": "" }), Class::Version, false),
        (400, json!({ "code": "InvalidContent", "message": "" }), Class::Invalid, false),
        (404, no_route, Class::NotFoundRoute, false),
        (404, no_nic, Class::NotFoundResource, false),
        (405, json!({ "code": "MethodNotAllowedError" }), Class::Invalid, false),
        (406, json!({}), Class::Version, false),
        (409, json!({ "code": "ValidationFailed" }), Class::Invalid, false),
        (409, json!({ "code": "Other" }), Class::Conflict, false),
        (410, json!({ "code": "Gone" }), Class::Gone, false),
        (412, json!({ "code": "PreconditionFailed" }), Class::Precondition, false),
        (422, json!({ "code": "InvalidParameters" }), Class::Invalid, false),
        (422, json!({ "code": "InUse" }), Class::Conflict, false),
        (429, json!({}), Class::Unavailable, true),
        (500, json!({ "message": "boom" }), Class::Server, true),
        (501, json!({}), Class::Server, true),
        (502, json!({}), Class::Unavailable, true),
        (503, json!({ "code": "ServiceUnavailableError" }), Class::Unavailable, true),
        (504, json!({}), Class::Unavailable, true),
        (507, json!({ "code": "SubnetFull" }), Class::Conflict, false),
    ];
    for (status, body, class, again) in cases {
        let script = Script::new(move |_| {
            let body = body.clone();
            async move { Ok(answer(status, &body)) }
        });
        let http = script.http().without_retries();
        let read = http.execute(Call::get(&["x"])).await.unwrap_err();
        assert_eq!(read.class(), class, "{status}");
        assert_eq!(read.is_retryable(), again, "{status}");
        assert!(!read.may_have_applied());
        let write = http.execute(Call::new(method("DELETE"), &["x"])).await.unwrap_err();
        assert!(!write.is_retryable(), "{status}");
        let maybe = matches!(status, 302 | 500 | 501 | 502 | 504);
        assert_eq!(write.may_have_applied(), maybe, "{status}");
    }
}

#[tokio::test]
async fn an_error_keeps_all_the_server_said() {
    let base = serve(Router::new().fallback(|| async {
        let body = json!({ "code": "InvalidParameters", "message": "Invalid parameters", "errors": [
            { "field": ["cn_uuid", "nonsense"], "code": "UnknownParameters", "message": "?" },
        ]});
        (
            axum::http::StatusCode::UNPROCESSABLE_ENTITY,
            [("x-request-id", "theirs")],
            axum::Json(body),
        )
    }))
    .await;
    let error = Http::new(&base, "t").unwrap().execute(Call::get(&["nics"]).query("a", 1)).await;
    let error = error.unwrap_err();
    assert_eq!(error.status(), Some(422));
    assert_eq!(error.code(), Some("InvalidParameters"));
    assert_eq!(error.message(), "Invalid parameters");
    assert_eq!(error.path(), "/nics?a=1");
    assert_eq!(error.request_id(), Some("theirs"));
    assert_eq!(error.unknown_parameters(), Some(vec!["cn_uuid", "nonsense"]));
    assert_eq!(error.to_string(), "GET /nics?a=1: invalid, status 422 InvalidParameters");
}

#[tokio::test]
async fn no_word_of_a_peer_is_in_the_sentence_of_an_error_and_its_beginning_is_told() {
    let secrets = "secret ".repeat(1 << 17);
    for (status, body) in [
        (500, json!({"code": "Secret secret", "message": secrets})),
        (
            422,
            json!({"code": secrets, "message": secrets, "errors": [{"field": "secret", "message": secrets}]}),
        ),
        (503, json!(secrets)),
        (200, json!(secrets)),
    ] {
        let script = Script::new(move |_| {
            let answer = answer(status, &body);
            async move { Ok(answer) }
        });
        let done = script.http().without_retries().execute(Call::get(&["x"])).await;
        let error = match done {
            Ok(reply) => reply.object().unwrap_err(),
            Err(error) => error,
        };
        let sentence = error.to_string();
        assert!(!sentence.to_lowercase().contains("secret"), "{status}: {sentence}");
        assert!(sentence.contains("GET /x: ") && sentence.len() < 200, "{status}: {sentence}");
        let told = error.peer_text().unwrap();
        assert!(told.contains("secret") && told.len() < 2048, "{status}: {}", told.len());
    }
}

#[tokio::test]
async fn an_error_without_code_keeps_its_text() {
    let script = Script::new(|_| async { Ok(answer(500, &json!({ "message": "moray is gone" }))) });
    let error = script.http().without_retries().execute(Call::get(&["x"])).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (None, "moray is gone"));
    let html = serve(Router::new().fallback(|| async {
        (axum::http::StatusCode::INTERNAL_SERVER_ERROR, "<html>no</html>").into_response()
    }))
    .await;
    let http = Http::new(&html, "t").unwrap().without_retries();
    let error = http.execute(Call::get(&["x"])).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (None, "<html>no</html>"));
}

#[tokio::test]
async fn bodies_that_are_no_objects_are_errors() {
    for body in ["", "<html>", "{\"a\":", "[]", "{}", "null", "1"] {
        let base = serve(Router::new().fallback(move || async move { body })).await;
        let reply = Http::new(&base, "t").unwrap().execute(Call::get(&["x"])).await.unwrap();
        assert_eq!(reply.object().unwrap_err().class(), Class::Protocol, "{body:?}");
    }
}

#[tokio::test]
async fn refusal_and_redirects_over_real_sockets() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let http = Http::new(&closed, "t").unwrap().without_retries();
    let error = http.execute(Call::new(method("DELETE"), &["x"])).await.unwrap_err();
    assert_eq!(error.class(), Class::Connect, "{error}");
    assert!(error.is_retryable() && !error.may_have_applied());

    let moved = "HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n";
    let (base, heads) = raw(Box::leak(Box::new([moved]))).await;
    let error = Http::new(&base, "t").unwrap().execute(Call::get(&["x"])).await.unwrap_err();
    assert_eq!((error.class(), error.status()), (Class::Protocol, Some(302)));
    assert_eq!(heads.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn bodies_are_capped() {
    let base = serve(Router::new().fallback(|| async { "x".repeat(5000) })).await;
    let http = Http::new(&base, "t").unwrap();
    let error = http.execute(Call::get(&["x"]).body_cap(4999)).await.unwrap_err();
    assert_eq!(error.class(), Class::Protocol);
    assert_eq!(http.execute(Call::get(&["x"]).body_cap(5000)).await.unwrap().body().len(), 5000);

    let drip = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nhello\r\n0\r\n\r\n";
    let (base, _) = raw(Box::leak(Box::new([drip]))).await;
    let http = Http::new(&base, "t").unwrap();
    let error = http.execute(Call::get(&["x"]).body_cap(9)).await.unwrap_err();
    assert_eq!(error.class(), Class::Protocol, "no length announced: {error}");
    assert_eq!(http.execute(Call::get(&["x"]).body_cap(10)).await.unwrap().body(), b"hellohello");
}

#[tokio::test]
async fn nesting_has_an_end() {
    for (deep, fine) in [(100, true), (101, false), (200_000, false)] {
        let text = format!("{{\"a\":{}{}}}", "[".repeat(deep - 1), "]".repeat(deep - 1));
        let script = Script::new(move |_| {
            let body = text.clone().into();
            async move { Ok(sdc_clients::http::Response { body, ..answer(200, &json!({})) }) }
        });
        let reply = script.http().execute(Call::get(&["x"])).await.unwrap();
        assert_eq!(reply.object().is_ok(), fine, "{deep}");
        if let Err(error) = reply.json::<Value>("anything") {
            assert_eq!(error.class(), Class::Protocol);
        }
    }
}

#[tokio::test]
async fn the_servers_clock_and_etag_are_read_as_sent() {
    let text = "HTTP/1.1 200 OK\r\ndate: Mon, 05 Jan 2026 10:00:02 GMT\r\netag: u1B2C3D4\r\n\
                content-length: 7\r\n\r\n{\"a\":1}";
    let (base, _) = raw(Box::leak(Box::new([text]))).await;
    let reply = Http::new(&base, "t").unwrap().execute(Call::get(&["x"])).await.unwrap();
    assert_eq!(reply.etag().as_deref(), Some("u1B2C3D4"));
    assert_eq!(reply.date(), Some("2026-01-05T10:00:02Z".parse().unwrap()));
}

/// Runs only as the child of the test below, with proxies in its environment.
#[tokio::test]
#[ignore = "run by proxies_in_the_environment_are_ignored"]
async fn child_with_a_proxy_in_its_environment() {
    let base = serve(echo()).await;
    let http = Http::new(&base, "t").unwrap().without_retries();
    http.execute(Call::get(&["x"])).await.unwrap();
}

#[test]
fn proxies_in_the_environment_are_ignored() {
    // A port that was free a moment ago: using the proxy would be refused.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = format!("http://{free}");
    #[allow(clippy::disallowed_methods)] // setting the variables in this process is not sound
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
    {
        child.env(name, &proxy);
    }
    child.env_remove("no_proxy").env_remove("NO_PROXY");
    let child = child
        .args(["--ignored", "--exact", "http::child_with_a_proxy_in_its_environment"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
}

#[tokio::test]
async fn a_transport_is_shared_between_services() {
    let transport: Arc<dyn sdc_clients::http::Transport> = Arc::new(HttpTransport::new().unwrap());
    for _ in 0..2 {
        let base = serve(echo()).await;
        let http = Http::with_transport(&base, "t", Arc::clone(&transport)).unwrap();
        http.execute(Call::get(&["x"])).await.unwrap();
    }
}

#[test]
fn user_agents_name_the_service_and_its_node() {
    assert_eq!(
        sdc_clients::http::user_agent("net-agent", "1.0.0", Some("u")),
        "net-agent/1.0.0 server/u"
    );
    assert_eq!(sdc_clients::http::user_agent("net-agent-cli", "1", None), "net-agent-cli/1");
}
