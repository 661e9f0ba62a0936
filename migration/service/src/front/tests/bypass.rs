// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Ways around the refusals for a VM that migrates: each row is a request, and what becomes of it.

#![allow(clippy::unwrap_used)]

use super::*;

const OTHER: &str = "1bb41ab0-2046-4d53-a82c-b9876136d4f1";
const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const PARTS: &str = "multipart/form-data; boundary=xX";
const STOP: &str = r#"{"action": "stop"}"#;
const PART: &str =
    "--xX\r\nContent-Disposition: form-data; name=\"action\"\r\n\r\nstop\r\n--xX--\r\n";
/// It reaches VMAPI as it came.
const PASSES: u16 = 0;
/// It does not reach VMAPI, and is answered here.
const OURS: u16 = 1;

/// Method, target, type of the body and its encoding, body, and the status of the refusal. `V` migrates, `O` does not.
type Row = (&'static str, &'static str, &'static str, &'static str, u16);

/// While the migration syncs.
const SYNCING: [Row; 76] = [
    ("GET", "/vms/V", "", "", PASSES),
    ("GET", "/vms/V?action=stop", "", "", PASSES),
    ("HEAD", "/vms/V", "", "", PASSES),
    ("GET", "/vms?predicate=%7B%22eq%22:[%22alias%22,%22a%22]%7D", "", "", PASSES),
    ("GET", "/vms/V/tags", "", "", PASSES),
    ("PUT", "/vms/V", JSON, r#"{"state": "running"}"#, PASSES),
    ("PUT", "/vms?server_uuid=x", JSON, r#"{"vms": {}}"#, PASSES),
    ("POST", "/vms", JSON, r#"{"uuid": "V"}"#, PASSES),
    ("POST", "/vms/O?action=stop", "", "", PASSES),
    ("POST", "/vms/O", JSON, STOP, PASSES),
    ("POST", "/vms/O?action=stop", "text/plain", "x", PASSES),
    ("POST", "/vms/O?uuid=V", JSON, STOP, PASSES),
    ("DELETE", "/vms/O", "", "", PASSES),
    ("DELETE", "/vms/O", JSON, "[]", PASSES),
    ("POST", "/vms/V?action=nonsense", "", "", PASSES),
    ("POST", "/vms/V?action=stop", JSON, r#"{"action": "nonsense"}"#, PASSES),
    ("POST", "/vms/V", "", "", PASSES),
    ("PATCH", "/vms/V", "", "", PASSES),
    ("POST", "/vms/V/tags", JSON, r#"{"a": "b"}"#, PASSES),
    ("DELETE", "/vms/V/tags/a%20b", "", "", PASSES),
    ("POST", "/vms/O/role_tags", JSON, "{}", PASSES),
    ("POST", "/vms/V?action=stop", "", "", 409),
    ("POST", "/vms/V", JSON, STOP, 409),
    ("POST", "/vms/V", "application/json; charset=utf-8", STOP, 409),
    ("POST", "/vms/V?action=nonsense", JSON, STOP, 409),
    ("POST", "/vms/V?action=", JSON, STOP, 409),
    ("POST", "/vms/V?action=stop", JSON, r#"{"action": ""}"#, 409),
    ("POST", "/vms/V?action=stop", JSON, r#"{"action": 0}"#, 409),
    ("POST", "/vms/V", JSON, r#"{"action": "nonsense", "action": "stop"}"#, 409),
    ("POST", "/vms/V", JSON, r#"{"uuid": "O", "action": "stop"}"#, 409),
    ("POST", "/vms/V", "Application/JSON", STOP, 409),
    ("POST", "/vms/V", FORM, "action=stop", 409),
    ("POST", "/vms/V?action=nonsense", FORM, "action=stop", 409),
    ("POST", "/vms/V", "Application/X-WWW-Form-Urlencoded", "a=b&%61ction=stop", 409),
    ("POST", "/vms/V", FORM, "[action]=stop", 409),
    ("POST", "/vms/V?%5Baction%5D=stop", "", "", 409),
    ("POST", "/vms/V?action=stop&action=nonsense", "", "", 409),
    ("POST", "/vms/V?action[]=stop", "", "", 409),
    ("POST", "/vms/V", JSON, r#"{"action": ["stop"]}"#, 409),
    ("POST", "/vms/O?uuid=V&action=stop", JSON, "[]", 409),
    ("DELETE", "/vms/V", "", "", 409),
    ("DELETE", "/vms/V?uuid=O", "", "", 409),
    ("DELETE", "/vms/O?uuid=V", JSON, "[]", 409),
    ("DELETE", "/vms/O?uuid=V", "APPLICATION/json", "[1]", 409),
    ("DELETE", "/vms/O?uuid=V&uuid=V", JSON, "[]", 409),
    ("POST", "/vms/V", "", STOP, 415),
    ("POST", "/vms/V", "text/plain", STOP, 415),
    ("POST", "/vms/V", "text/csv", "action\nstop", 415),
    ("POST", "/vms/V", PARTS, PART, 415),
    ("POST", "/vms/O", PARTS, PART, 415),
    ("POST", "/vms/V", "application/json|gzip", "gzip", 415),
    ("POST", "/vms/O", "application/json|GZIP", "gzip", 415),
    ("DELETE", "/vms/O?uuid=V", "application/json|gzip", "gzip", 415),
    ("POST", "//vms/V?action=stop", "", "", 400),
    ("POST", "/vms//V?action=stop", "", "", 400),
    ("POST", "/vms/V/?action=stop", "", "", 400),
    ("POST", "/vms/?action=stop&uuid=V", "", "", 400),
    ("DELETE", "/./vms/V", "", "", 400),
    ("DELETE", "/x/../vms/V", "", "", 400),
    ("DELETE", "/vms/O/../V", "", "", 400),
    ("DELETE", "/vms/O/%2e%2E/V", "", "", 400),
    ("DELETE", "/vms/O/.%2e/V", "", "", 400),
    ("DELETE", "/vms%2FV", "", "", 400),
    ("DELETE", "/vms/O/..%2fV", "", "", 400),
    ("DELETE", "/vms\\V", "", "", 400),
    ("DELETE", "/vms/O%5c..%5cV", "", "", 400),
    ("DELETE", "/%76ms/V", "", "", 400),
    ("DELETE", "/vms/%30aa41ab0-2046-4d53-a82c-b9876136d4f1", "", "", 400),
    ("DELETE", "/vms/%zz", "", "", 400),
    ("GET", "//ping", "", "", 400),
    ("POST", "/migrations//V/store", JSON, "{}", 400),
    ("POST", "/vms/V?action=migrate", "", "", OURS),
    ("POST", "/vms/O?action=nonsense", JSON, r#"{"action": "migrate"}"#, OURS),
    ("POST", "/vms/O", FORM, "action=migrate", OURS),
    ("POST", "/vms/O?uuid=V&action=migrate", "Application/Json", "[]", OURS),
    ("POST", "/vms/O", JSON, r#"{"action": ["migrate"]}"#, OURS),
];

/// While the switch runs.
const SWITCHING: [Row; 11] = [
    ("GET", "/vms/V/tags", "", "", PASSES),
    ("POST", "/vms/O/tags", JSON, r#"{"a": "b"}"#, PASSES),
    ("PUT", "/vms/V", JSON, r#"{"state": "running"}"#, PASSES),
    ("POST", "/vms/V/tags", JSON, r#"{"a": "b"}"#, 409),
    ("PUT", "/vms/V/tags", JSON, r#"{"a": "b"}"#, 409),
    ("DELETE", "/vms/V/tags", "", "", 409),
    ("DELETE", "/vms/V/tags/a", "", "", 409),
    ("POST", "/vms/V/customer_metadata", FORM, "a=b", 409),
    ("PUT", "/vms/V/internal_metadata", JSON, r#"{"a": "b"}"#, 409),
    ("POST", "/vms/V/role_tags", JSON, r#"{"role_tags": []}"#, 409),
    ("DELETE", "/vms/O/tags?uuid=V", JSON, "[]", 409),
];

/// Plays a row; returns what is wrong with its outcome.
async fn play(fields: &Value, row: Row) -> Option<String> {
    let world = world().await;
    world.keep(&record(fields.clone())).await;
    let (method, target, kind, body, want) = row;
    let named = |text: &str| text.replace('V', VM).replace('O', OTHER);
    let (target, body) = (named(target), if kind == PARTS { body.to_owned() } else { named(body) });
    let mut request = Request::builder().method(method).uri(&target);
    let (kind, encoding) = kind.split_once('|').unwrap_or((kind, ""));
    for (name, value) in [("content-type", kind), ("content-encoding", encoding)] {
        if !value.is_empty() {
            request = request.header(name, value);
        }
    }
    let answer = call(world.routes.clone(), request.body(Body::from(body.clone())).unwrap()).await;
    let (status, reply) = (answer.status().as_u16(), read(answer).await);
    let sent = world.vmapi.requests().into_iter().find(|sent| sent.method == method);
    let outcome = match sent {
        None if status == want || (want == OURS && status >= 400) => return None,
        Some(sent) if want == PASSES => {
            let is_same =
                sent.target() == target && *sent.body.unwrap_or_default() == *body.as_bytes();
            return (!is_same).then(|| format!("{row:?} was changed"));
        }
        Some(sent) => format!("reached VMAPI as {} {}", sent.method, sent.target()),
        None => "did not reach VMAPI".to_owned(),
    };
    Some(format!("{row:?} {outcome}: {status} {reply}"))
}

#[tokio::test] // M95 M96 M97 M98
async fn no_way_of_writing_a_request_leads_around_a_refusal() {
    let mut wrong = Vec::new();
    for (phase, rows) in [("sync", &SYNCING[..]), ("switch", &SWITCHING[..])] {
        let fields = json!({"vm_uuid": VM, "state": "running", "phase": phase});
        for row in rows {
            wrong.extend(play(&fields, *row).await);
        }
    }
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}
