// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A reply against what was recorded for the same bytes. Pure.

use serde_json::Value;

use crate::conform::reply::Response;

/// Objects of `/status` whose keys are names of things, not of fields: listeners, tasks, and how
/// many messages were averaged, of which a quiet daemon has had none.
const NAMED_BY_THINGS: [&str; 4] =
    ["eventsListeners", "pending", "pending_actions", "message_delays"];
/// What of an event's line the clock decides, or this daemon adds.
const FREE_OF_READY: [&str; 4] = ["date", "uuid", "seq", "epoch"];

/// What came for a request.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) responses: Vec<Response>,
    pub(super) closed: bool,
}

/// What differs from one recorded reply; `path` is what was asked for.
pub(super) fn difference(recorded: &Value, reply: &Reply, path: &str) -> Option<String> {
    let wanted = recorded["responses"].as_array().map(Vec::as_slice).unwrap_or_default();
    let closes = !recorded["server_closed"].is_null();
    let dropped = wanted.is_empty() && closes;
    if dropped
        && reply.closed
        && matches!(&reply.responses[..], [one] if (400..500).contains(&one.status))
        && recorded["node"].as_str().is_some_and(|node| node.starts_with("v0."))
    {
        return None;
    }
    if wanted.len() != reply.responses.len() {
        let codes: Vec<u16> = reply.responses.iter().map(|one| one.status).collect();
        return Some(format!("{} responses recorded, got {codes:?}", wanted.len()));
    }
    if closes != reply.closed {
        let state = |closed| if closed { "closed" } else { "open" };
        return Some(format!("recorded {}, got {}", state(closes), state(reply.closed)));
    }
    wanted.iter().zip(&reply.responses).find_map(|(wanted, got)| one(wanted, got, path))
}

fn one(wanted: &Value, got: &Response, path: &str) -> Option<String> {
    let line = wanted["status_line"].as_str().unwrap_or_default();
    let status: Option<u16> = line.split(' ').nth(1).and_then(|code| code.parse().ok());
    if status != Some(got.status) {
        return Some(format!("status {status:?} recorded, got {}", got.status));
    }
    let headers = wanted["headers"].as_array().into_iter().flatten();
    let content_type = headers
        .filter(|header| header[0].as_str().is_some_and(|k| k.eq_ignore_ascii_case("content-type")))
        .find_map(|header| header[1].as_str());
    let ours = got.header("content-type");
    if content_type != ours {
        return Some(format!("Content-Type {content_type:?} recorded, got {ours:?}"));
    }
    let text = wanted["body"].as_str().unwrap_or_default();
    let body = String::from_utf8_lossy(&got.body);
    if path.starts_with("/events") && text.starts_with('{') {
        return ready(text, &body);
    }
    let open = wanted["open_ended"] == true;
    if open == got.complete {
        return Some(format!("open-ended is {open} recorded, the other way now"));
    }
    match (serde_json::from_str::<Value>(text), serde_json::from_str::<Value>(&body)) {
        (Ok(wanted), Ok(got)) if path.starts_with("/status") => shape(&wanted, &got, "status"),
        (Ok(wanted), Ok(got)) if wanted == got => None,
        _ if text == body => None,
        _ => Some(format!("body recorded {text}\n  got {body}")),
    }
}

/// The first line of a stream.
fn ready(text: &str, body: &str) -> Option<String> {
    let parse = |text: &str| {
        let mut line: Value = serde_json::from_str(text.lines().next()?).ok()?;
        let vms: Value = serde_json::from_str(line["vms"].as_str()?).ok()?;
        line["vms"] = vms;
        line.as_object_mut()?.retain(|key, _| !FREE_OF_READY.contains(&key.as_str()));
        Some(line)
    };
    match (parse(text), parse(body)) {
        (Some(wanted), Some(got)) if wanted == got => None,
        (wanted, got) => Some(format!("first line recorded {wanted:?}\n  got {got:?}")),
    }
}

/// Every recorded key is there with the recorded type; keys of ours may follow.
fn shape(wanted: &Value, got: &Value, at: &str) -> Option<String> {
    match (wanted, got) {
        (Value::Object(wanted), Value::Object(got)) => {
            let name = at.rsplit('.').next().unwrap_or(at);
            if NAMED_BY_THINGS.contains(&name) {
                return None;
            }
            wanted.iter().find_map(|(key, value)| match got.get(key) {
                Some(found) => shape(value, found, &format!("{at}.{key}")),
                None => Some(format!("{at} has no {key}")),
            })
        }
        _ if std::mem::discriminant(wanted) == std::mem::discriminant(got) => None,
        _ => Some(format!("{at}: recorded {wanted}, got {got}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn got(status: u16, body: &str) -> Response {
        let head = "HTTP/1.1 X\r\nContent-Type: application/json".to_owned();
        Response { status, head, body: body.as_bytes().to_vec(), complete: true }
    }

    fn recorded(code: &str, body: &str) -> Value {
        json!({"node": "v0.10.48", "server_closed": null, "responses": [{"body": body,
            "status_line": format!("HTTP/1.1 {code}"), "headers": [["Content-Type", "application/json"]]}]})
    }

    #[test]
    fn what_counts_and_what_is_free() {
        let reply = |status, body| Reply { responses: vec![got(status, body)], closed: false };
        let pong = recorded("200 OK", r#"{"ping":"pong"}"#);
        assert_eq!(difference(&pong, &reply(200, r#"{ "ping": "pong" }"#), "/ping"), None);
        assert!(difference(&pong, &reply(200, r#"{"ping":1}"#), "/ping").is_some());
        assert!(difference(&pong, &reply(404, r#"{"ping":"pong"}"#), "/ping").is_some());
        let closed = Reply { closed: true, ..reply(200, r#"{"ping":"pong"}"#) };
        assert!(difference(&pong, &closed, "/ping").is_some());
        let text = recorded("404 X", "VM Not Found: a");
        assert!(difference(&text, &reply(404, "VM Not Found: b"), "/vms/a").is_some());
        let status = recorded("200 OK", r#"{"a":{"b":1},"c":"x"}"#);
        assert_eq!(
            difference(&status, &reply(200, r#"{"a":{"b":2,"n":0},"c":"y"}"#), "/status"),
            None
        );
        assert!(
            difference(&status, &reply(200, r#"{"a":{"b":"2"},"c":"y"}"#), "/status").is_some()
        );
        assert!(difference(&status, &reply(200, r#"{"a":{"b":2}}"#), "/status").is_some());
    }

    #[test]
    fn a_refusal_stands_in_for_a_dropped_connection() {
        let dropped = json!({"node": "v0.10.48", "responses": [], "server_closed": "fin"});
        let refusal = Reply { responses: vec![got(400, "")], closed: true };
        assert_eq!(difference(&dropped, &refusal, "/ping"), None);
        assert!(difference(&dropped, &Reply { closed: false, ..refusal }, "/ping").is_some());
        let served = Reply { responses: vec![got(200, "")], closed: true };
        assert!(difference(&dropped, &served, "/ping").is_some());
    }
}
