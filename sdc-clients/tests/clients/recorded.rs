// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The recordings of the real services: every NIC and every event survives parsing and printing,
//! every refusal has its class.

use pretty_assertions::assert_eq;
use sdc_clients::napi::Nic;
use sdc_clients::vminfod::{Record, parse_line};
use sdc_clients::{Class, Error};
use serde_json::Value;

/// Returns the lines of a recording.
fn recording(name: &str) -> Vec<Value> {
    let text = recordings::text(name).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

// S27
#[test]
fn napi_as_recorded() {
    let (mut nics, mut refusals) = (0, 0);
    for name in ["napi-transcripts.jsonl", "napi-transcripts-eras.jsonl"] {
        for exchange in recording(name) {
            let (request, response) = (&exchange["request"], &exchange["response"]);
            let Some(status) = response["status"].as_u64() else { continue };
            let path = request["path"].as_str().unwrap();
            let method: ::http::Method = request["method"].as_str().unwrap().parse().unwrap();
            let body = &response["body"];
            if status >= 300 {
                let raw = match response["body_text"].as_str() {
                    Some(text) => text.to_owned(),
                    None if body.is_null() => String::new(),
                    None => body.to_string(),
                };
                let status = ::http::StatusCode::from_u16(status as u16).unwrap();
                let headers = Default::default();
                let error = Error::from_answer(&method, path, status, &headers, raw.as_bytes());
                assert_eq!(error.code(), body["code"].as_str());
                assert_ne!(error.class(), Class::Protocol, "{exchange}");
                if body["message"] == "nic not found" {
                    assert!(error.is_not_found_resource());
                }
                assert_eq!(
                    error.unknown_parameters().is_some(),
                    body.to_string().contains("\"UnknownParameters\""),
                    "{exchange}"
                );
                refusals += 1;
                continue;
            }
            if !path.contains("nics") {
                continue;
            }
            let list = body.as_array().cloned().unwrap_or_else(|| vec![body.clone()]);
            for value in list.into_iter().filter(|value| value.get("mac").is_some()) {
                let nic: Nic = serde_json::from_value(value.clone()).unwrap();
                assert_eq!(serde_json::to_value(&nic).unwrap(), value);
                assert!(!nic.other.contains_key("created_timestamp"), "timestamps are read");
                nics += 1;
            }
        }
    }
    assert!(nics > 0 && refusals > 0, "{nics} {refusals}");
}

#[test]
fn events_as_recorded() {
    let mut count = 0;
    for scenario in recording("vminfod-events.jsonl") {
        let steps = scenario["steps"].as_array().cloned().unwrap_or_default();
        let ready = scenario["ready"].as_str().map(str::to_owned);
        let lines = steps.iter().flat_map(|step| step["events"].as_array().unwrap());
        let lines = lines.map(|line| line.as_str().unwrap().to_owned()).chain(ready);
        for line in lines {
            let wire: Value = serde_json::from_str(&line).unwrap();
            match parse_line(line.as_bytes()).unwrap() {
                Record::Ready { vms, .. } => {
                    assert_eq!(serde_json::to_string(&vms).unwrap(), wire["vms"].as_str().unwrap());
                }
                Record::Create { vm, .. } => assert!(line.contains(&Value::Object(vm).to_string())),
                Record::Modify { changes, vm, .. } => {
                    assert!(line.ends_with(&format!(
                        r#""vm":{},"changes":{}}}"#,
                        Value::Object(vm),
                        serde_json::to_string(&changes).unwrap()
                    )));
                }
                Record::Delete { zonename, .. } => assert_eq!(wire["zonename"], zonename),
                other => panic!("not of the default stream: {other:?}"),
            }
            count += 1;
        }
    }
    assert!(count > 0);
}
