// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The request log: one line for each attempt at debug, and no secret in any. A program of its own:
//! whether a log line is wanted is remembered for the whole process by the thread that comes first, so
//! tests without a subscriber must not run beside this one.

#![allow(clippy::unwrap_used)] // a failed step is a failed test

#[allow(dead_code)] // the other programs use the rest
#[path = "clients/script.rs"]
mod script;

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use sdc_clients::Http;
use sdc_clients::http::{Call, Precondition};
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use script::{Script, answer};

/// Keeps every event as text.
struct Keep(Arc<Mutex<Vec<(Level, String)>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Keep {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("sdc_clients")
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push((*event.metadata().level(), line.0));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn every_attempt_is_logged_without_secrets() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let _guard = tracing::subscriber::set_default(Keep(Arc::clone(&lines)));
    let script = Script::new(|request| async move {
        let status = if request.method == "GET" { 503 } else { 200 };
        Ok(answer(status, &json!({ "message": "sesame" })))
    });
    let base = "http://user:sesame@service.test/?key=sesame";
    let http = Http::with_transport(base, "t", script.clone()).unwrap();
    assert!(!format!("{http:?}").contains("sesame"));
    let write = Call::new("PUT".parse().unwrap(), &["vms", "x"])
        .json(&json!({ "root_pw": "sesame" }))
        .precondition(Precondition::IfMatch("sesame".into()));
    http.execute(write).await.unwrap();
    lines.lock().unwrap().iter().for_each(|(_, line)| assert!(!line.contains("sesame"), "{line}"));
    http.execute(Call::get(&["vms"]).query("state", "active")).await.unwrap_err();
    let lines = lines.lock().unwrap().clone();
    let requests: Vec<&String> = lines
        .iter()
        .filter(|(level, line)| *level == Level::DEBUG && line.contains("message=request"))
        .map(|(_, line)| line)
        .collect();
    assert_eq!(requests.len(), script.count(), "{lines:?}");
    assert!(requests[0].contains("method=PUT") && requests[0].contains("status=200"));
    assert!(requests[2].contains("attempt=2") && requests[2].contains("/vms?state=active"));
    assert!(requests.iter().all(|line| line.contains("request_id=") && line.contains("ms=")));
}
