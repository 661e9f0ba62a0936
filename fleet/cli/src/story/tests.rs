// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Mutex;

use daemon::cli::Tone;
use daemon::command::{Call, Commands, Output, Run};
use sdc_clients::fleet::{Kind, Labels, Message, Position, Target};
use serde_json::{Value, json};

use super::*;

const CN: &str = "c0000000-0000-4000-8000-000000000001";
const OTHER: &str = "c0000000-0000-4000-8000-000000000002";
const VM: &str = "40000000-0000-4000-8000-000000000001";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn told(second: i64, source: &'static str, what: &str) -> Told {
    let (what, details) = (what.to_owned(), String::new());
    Told { at: at(second), source, cn: None, what, details, tone: None }
}

fn whats(all: &[Told]) -> Vec<&str> {
    all.iter().map(|it| it.what.as_str()).collect()
}

#[test]
fn what_one_source_says_stays_in_its_order_and_times_decide_between_sources() {
    let one = vec![told(1, "a", "a1"), told(9, "a", "a2"), told(3, "a", "a3"), told(10, "a", "a4")];
    let other = vec![told(1, "b", "b1"), told(4, "b", "b2"), told(12, "b", "b3")];
    let all = merged(vec![one, Vec::new(), other]);
    // Its clock was set back behind a2; sorted by time, a3 stood before it.
    assert_eq!(whats(&all), ["a1", "b1", "b2", "a2", "a3", "a4", "b3"]);
    assert_eq!(merged(Vec::new()), []);
}

#[test]
fn a_node_is_ordered_by_the_stream() {
    let message = |cn: &str, seq, kind| Message {
        target: Target { cn: cn.into(), vm: Some(VM.into()) },
        labels: Labels::of(kind, Position { epoch: "e".into(), seq }),
        seq,
        behind: 0,
        body: json!({"vm": {"state": "running"},
            "changes": [{"prettyPath": "pid", "path": ["pid"], "action": "changed"}]})
        .to_string()
        .into(),
    };
    let found = [
        (at(5), message(CN, 1, Kind::Create)),
        (at(6), message(OTHER, 2, Kind::Create)),
        (at(4), message(CN, 3, Kind::Modify)),
    ];
    let all = merged(of_feed(&found));
    assert_eq!(whats(&all), ["create", "modify", "create"]);
    assert_eq!(all[1].details, "running: pid");
    assert_eq!(all[2].cn.as_deref(), Some(OTHER));
}

#[test]
fn a_migration_is_told_once_whether_it_has_ended_or_not() {
    let ended = json!([{"what": "migrate", "outcome": "successful", "by": "ops", "from": CN, "to": OTHER,
        "began": "2026-01-01T00:00:00.000Z", "ended": "2026-01-01T00:01:00.000Z", "downtime_ms": 2345,
        "steps": [
            {"phase": "sync", "state": "failed", "error": "no room", "began": "2026-01-01T00:00:01.000Z",
             "ended": "2026-01-01T00:00:02.000Z"},
            {"phase": "switch", "state": "successful", "began": "2026-01-01T00:00:30.000Z",
             "ended": "2026-01-01T00:00:40.000Z"}]}]);
    let open = json!({"vm_uuid": VM, "source_server_uuid": CN, "progress_history": [
        {"phase": "switch", "state": "successful", "started_timestamp": "2026-01-01T00:00:30.000Z",
         "finished_timestamp": "2026-01-01T00:00:40.000Z"},
        {"phase": "rollback", "state": "running", "started_timestamp": "2026-01-01T00:02:00.000Z"}]});
    let ended: Vec<_> = serde_json::from_value(ended).unwrap();
    let open = serde_json::from_value(open).unwrap();
    let all = read::of_migrations(&ended, Some(&open), &Names::default());
    assert_eq!(
        whats(&all),
        [
            "migrate begins",
            "sync failed",
            "switch successful",
            "migrate successful",
            "rollback running"
        ]
    );
    assert_eq!(all[0].details, format!("{CN} to {OTHER}; by ops"));
    assert_eq!((all[1].details.as_str(), all[1].tone), ("no room", Some(Tone::Bad)));
    assert_eq!(all[3].details, format!("{CN} to {OTHER}; down for 2.3 s"));
}

#[test]
fn jobs_of_migrations_are_not_told_twice() {
    let job = |task: &str, minute: u32, execution: &str, error: Value| {
        json!({"name": format!("{task}-7.1"), "params": {"task": task}, "execution": execution,
            "created_at": format!("2026-01-01T00:{minute:02}:00.000Z"), "chain_results": [{"error": error}]})
    };
    let jobs = [
        job("stop", 3, "failed", json!("CNAPI: no\nanswer")),
        job("migrate-sync", 2, "succeeded", json!("")),
        job("start", 1, "succeeded", json!("")),
    ];
    let all = read::of_jobs(&jobs);
    assert_eq!(whats(&all), ["job start succeeded", "job stop failed"]);
    assert_eq!((all[1].details.as_str(), all[1].tone), ("CNAPI: no\nanswer", Some(Tone::Bad)));
}

/// What a node prints whose vm-agent does not answer.
fn printed() -> String {
    let history = json!([{"at": "2026-01-01T00:00:05Z", "mac": "f2:00:00:00:00:01", "vm": VM,
        "outcome": "deleted", "rule": "reap", "why": "== no VM\n== has it", "old": {}}]);
    let verdicts = json!([
        {"date": "2026-01-01T00:00:04Z", "name": VM, "initiator": "guest", "kind": "poweroff",
         "evidence": ["SHUTDOWN", "reason guest-shutdown"]},
        {"date": "2026-01-01T00:00:04Z", "name": "another", "initiator": "host", "kind": "kill"}]);
    format!("== net-agent\n{history:#}\n== vm-agent\n== kvmd\n{verdicts:#}\n")
}

#[test]
fn a_program_of_a_node_that_says_nothing_hides_no_other() {
    let (all, silent) = read::of_node(CN, VM, &printed());
    assert_eq!(silent, ["vm-agent"]);
    let all = merged(all);
    assert_eq!(whats(&all), ["off by guest (poweroff)", "deleted NIC f2:00:00:00:00:01"]);
    assert_eq!(all[0].details, "SHUTDOWN, reason guest-shutdown");
    assert_eq!(all[1].details, "reap: == no VM\n== has it");
    let status = json!({"last_puts": [
        {"at": "2026-01-01T00:00:09.000Z", "vm": VM, "what": "destroyed"},
        {"at": "2026-01-01T00:00:08.000Z", "vm": "another", "what": "put"},
        {"at": "2026-01-01T00:00:07.000Z", "vm": VM, "what": "put"}]});
    let why =
        json!({"vm": VM, "at": "2026-01-01T00:00:10.000Z", "action": "wait", "reason": "brake"});
    let (all, silent) = read::of_node(CN, VM, &format!("== vm-agent\n{status:#}\n{why:#}\n"));
    assert!(silent.is_empty());
    assert_eq!(
        all[0].iter().map(|it| (it.what.as_str(), it.details.as_str())).collect::<Vec<_>>(),
        [
            ("wrote VMAPI's record", "put"),
            ("wrote VMAPI's record", "destroyed"),
            ("decided: wait", "brake")
        ]
    );
}

/// sdc-oneachnode of a data centre that has one node.
#[derive(Default)]
struct Headnode {
    asked: Mutex<Vec<Vec<String>>>,
}

impl Commands for Headnode {
    fn run(&self, call: Call) -> Run<'_> {
        let (stdout, stderr, status) = match call.args.contains(&CN.to_owned()) {
            true => {
                let result = json!({"stdout": printed(), "stderr": "vm-agent: no answer\n", "exit_status": 0});
                (json!([{"uuid": CN, "hostname": "cn-1", "result": result}]), "", 0)
            }
            false => {
                let missing = "ERROR: could not find all nodes\n\n  missing nodes:\n    OTHER\n\n";
                (json!([]), missing, 10)
            }
        };
        self.asked.lock().unwrap().push(call.args);
        let (stdout, stderr) = (format!("{stdout}\n").into(), stderr.into());
        Box::pin(async move { Ok(Output { status, stdout, stderr }) })
    }
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_named_and_no_name_is_a_command() {
    let headnode = Headnode::default();
    let liar = "c1 x; rm -rf /".to_owned();
    let cns = BTreeSet::from([CN.to_owned(), OTHER.to_owned(), liar]);
    let (vm, since) = (VM.parse().unwrap(), Some(at(1_767_225_600)));
    let answers = sources::nodes(&headnode, &cns, vm, since, &Names::default()).await;
    assert_eq!(answers.told.iter().flatten().count(), 2);
    let [program, node] = answers.silent.as_slice() else { panic!("{:?}", answers.silent) };
    assert_eq!(*program, format!("vm-agent on {CN} does not answer: vm-agent: no answer"));
    let missing =
        format!("{OTHER} does not answer: sdc-oneachnode: ERROR: could not find all nodes");
    assert!(node.starts_with(&missing), "{node}");
    let asked = headnode.asked.into_inner().unwrap();
    assert_eq!(asked.len(), 2);
    let is_plain = |args: &Vec<String>| args.iter().all(|arg| !arg.contains("rm -rf"));
    assert!(asked.iter().all(is_plain), "{asked:?}");
    assert!(asked[0].last().unwrap().contains(" --since 2026-01-01T00:00:00.000Z"), "{asked:?}");
}

#[test]
fn rows_have_one_form_of_time_and_none_is_older_than_asked_for() {
    let screen = Screen { is_terminal: false, colour: false };
    let layout = Layout { parsable: true, ..Layout::default() };
    let mut late = told(70, "kvmd", "off by \u{1b}[2J");
    late.cn = Some(CN.to_owned());
    let sources = vec![vec![told(10, "VMAPI", "job start"), late]];
    let text = list(sources, Some(at(60)), &Names::default(), &layout, screen).unwrap();
    assert_eq!(text, format!("1970-01-01T00\\:01\\:10.000Z:{CN}:kvmd:off by \\\\u001b[2J:\n"));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_never_answers_is_not_waited_for() {
    let never = std::future::pending::<Result<(), sdc_clients::Error>>();
    assert_eq!(sources::within(never).await, Err("no answer in 20s".to_owned()));
}
