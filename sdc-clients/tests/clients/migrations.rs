// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Migrations: the routes, and a watch over lost connections.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use pretty_assertions::assert_eq;
use sdc_clients::http::StreamResponse;
use sdc_clients::migrations::{
    Event, Migration, MigrationQuery, Migrations, News, Options, Watcher, watch,
};
use sdc_clients::{Class, Error, Jitter};
use serde_json::{Value, json};

use crate::script::{Script, answer};

/// The recorded answers that are migrations or lists of them, as they came.
fn recorded() -> Vec<Value> {
    let text = recordings::text("vmapi-transcripts.jsonl").unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let bodies = lines.filter_map(|line| {
        let path = line["request"]["path"].as_str()?.to_owned();
        let is_read = line["request"]["method"] == "GET" && line["response"]["status"] == 200;
        let is_one = path.starts_with("/migrations") && !path.ends_with("/watch");
        (is_read && is_one).then(|| line["response"]["body"].clone())
    });
    bodies.flat_map(|body| body.as_array().cloned().unwrap_or(vec![body])).collect()
}

#[test]
fn recorded_migrations_survive_reading_and_writing() {
    let recorded = recorded();
    assert!(recorded.len() > 50, "{}", recorded.len());
    for body in recorded {
        let migration: Migration = serde_json::from_value(body.clone()).unwrap();
        assert!(!migration.vm_uuid.is_empty() && !migration.phase.is_empty());
        let written = serde_json::to_value(&migration).unwrap();
        for (key, value) in body.as_object().unwrap() {
            let odd = key == "state" && !value.is_string();
            assert!(written[key] == *value || value.is_null() || odd, "{key}: {body}");
        }
    }
}

#[test]
fn a_field_of_another_type_hides_no_record() {
    let odd = json!({
        "vm_uuid": "u", "state": 7, "automatic": "true", "duration_ms": 12.7, "error": {"a": 1},
        "progress_history": [{"phase": "sync", "current_progress": -1, "eta_ms": 1.5}, 3, null],
    });
    let migration: Migration = serde_json::from_value(odd).unwrap();
    assert_eq!((migration.vm_uuid.as_str(), migration.state.as_str()), ("u", ""));
    assert_eq!(
        (migration.automatic, migration.duration_ms, migration.error),
        (false, Some(12), None)
    );
    let [entry] = &migration.progress_history[..] else { panic!("one entry") };
    assert_eq!((entry.current_progress, entry.eta_ms), (None, Some(1)));
    let none: Migration = serde_json::from_value(json!({"progress_history": {}})).unwrap();
    assert_eq!(none, Migration::default());
}

#[tokio::test]
async fn actions_and_queries_are_the_services() {
    let script = Script::new(|request| async move {
        Ok(match request.url.path() {
            "/migrations" => answer(200, &json!([])),
            "/vms/done" => answer(200, &Value::Null),
            "/vms/u" if request.url.query().is_some_and(|query| query.contains("estimate")) => {
                answer(200, &json!({"size": "many"}))
            }
            "/vms/u" => answer(202, &json!({"job_uuid": "J", "migration": {"phase": "begin"}})),
            _ => answer(200, &json!({"vm_uuid": "another"})),
        })
    });
    let migrations = Migrations::new(script.http());
    let query = MigrationQuery {
        state: Some("failed".into()),
        source_server_uuid: Some("s".into()),
        ..MigrationQuery::default()
    };
    assert_eq!(migrations.list(&query).await.unwrap(), []);
    let options = Options {
        migration_automatic: true,
        override_server_uuid: Some("t".into()),
        ..Options::default()
    };
    let begun = migrations.act("u", "begin", &options).await.unwrap();
    assert_eq!(begun.job_uuid.as_deref(), Some("J"));
    assert_eq!(begun.migration.unwrap().phase, "begin");
    let done = migrations.act("done", "finalize", &Options::default()).await.unwrap();
    assert_eq!(done.job_uuid, None);
    let odd = migrations.estimate_size("u", None).await.unwrap_err();
    assert_eq!(odd.class(), Class::Protocol);
    assert_eq!(migrations.get("u").await.unwrap_err().class(), Class::Protocol, "of another VM");
    assert_eq!(
        script.targets()[..3],
        [
            "/migrations?format=raw&state=failed&source_server_uuid=s",
            "/vms/u?action=migrate&migration_action=begin&migration_automatic=true&override_server_uuid=t",
            "/vms/done?action=migrate&migration_action=finalize",
        ]
    );
}

/// What one connection gives: lines, then its end; or then silence.
enum Connection {
    Ends(Vec<Value>),
    Silent(Vec<Value>),
    Refused(u16),
}

fn watcher(connections: Vec<Connection>) -> (Watcher, Arc<Script>) {
    let queue = Mutex::new(VecDeque::from(connections));
    let script = Script::streaming(move |request| {
        let lines = |lines: Vec<Value>| {
            stream::iter(lines.into_iter().map(|line| Ok(Bytes::from(format!("{line}\n")))))
        };
        let body = match queue.lock().unwrap().pop_front().expect("one more connection") {
            Connection::Ends(all) => lines(all).boxed(),
            Connection::Silent(all) => lines(all).chain(stream::pending()).boxed(),
            Connection::Refused(status) => {
                let (status, headers) = (status.try_into().unwrap(), Default::default());
                let body = json!({"code": "ResourceNotFound", "message": "migration not found"});
                let body = body.to_string();
                let target = request.target();
                let error =
                    Error::from_answer(&request.method, target, status, &headers, body.as_bytes());
                return Err(error);
            }
        };
        Ok(StreamResponse { status: 200.try_into().unwrap(), headers: Default::default(), body })
    });
    let client = Migrations::new(script.http());
    (watch(&client, "u", Jitter::from_seed(1)), script)
}

/// The names of all news until the end, or the class of the error that ended them.
async fn told(watcher: &mut Watcher) -> Vec<String> {
    let mut told = Vec::new();
    loop {
        told.push(match watcher.next().await {
            Ok(Some(News::Opened)) => "opened".to_owned(),
            Ok(Some(News::Lost(_))) => "lost".to_owned(),
            Ok(Some(News::Event(Event::Progress(progress)))) => progress.phase.clone(),
            Ok(Some(News::Event(Event::End { state, .. }))) => format!("end {state}"),
            Ok(Some(News::Event(Event::Other(_)))) => "other".to_owned(),
            Ok(None) => return told,
            Err(error) => format!("{:?}", error.class()),
        });
    }
}

fn progress(phase: &str) -> Value {
    json!({"type": "progress", "phase": phase, "state": "running"})
}

fn end() -> Value {
    json!({"type": "end", "phase": "sync", "state": "paused"})
}

#[tokio::test(start_paused = true)]
async fn a_watch_outlives_its_connections_and_ends_with_the_end() {
    let (mut watcher, script) = watcher(vec![
        Connection::Ends(vec![progress("begin"), json!({"type": "warning"})]),
        Connection::Refused(503),
        Connection::Silent(vec![progress("sync")]),
        Connection::Silent(vec![end(), progress("never")]),
    ]);
    let told = told(&mut watcher).await;
    assert_eq!(
        told,
        [
            "opened",
            "begin",
            "other",
            "lost",
            "lost",
            "opened",
            "sync",
            "lost",
            "opened",
            "end paused"
        ]
    );
    let times = script.times();
    assert!(times[3] - times[2] >= Duration::from_secs(150), "silence is waited for");
    assert_eq!(script.targets()[0], "/migrations/u/watch");
    assert!(watcher.next().await.unwrap().is_none(), "nothing follows the end");
}

#[tokio::test(start_paused = true)]
async fn what_another_try_would_not_change_ends_a_watch() {
    for (connection, want) in [
        (Connection::Refused(404), vec!["NotFoundResource"]),
        (Connection::Ends(vec![json!(["no", "object"])]), vec!["opened", "Protocol"]),
    ] {
        let (mut watcher, script) = watcher(vec![connection]);
        assert_eq!(told(&mut watcher).await, want);
        assert_eq!(script.count(), 1);
    }
}
