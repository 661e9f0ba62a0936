// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Watching: streams that break, that hang, whose record goes.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::program::{config, run, start};
use super::service::{Answer, Script, recorded};

const VM: &str = "1384e3f5-d136-440d-bee0-1d903f37e0c1";

fn watch() -> String {
    format!("GET /migrations/{VM}/watch")
}

fn lines(id: &str) -> Vec<Value> {
    let Answer::Lines(lines) = recorded(&["watch"])[id].answer.clone() else { panic!("{id}") };
    lines
}

#[tokio::test] // R19
async fn a_watch_goes_on_after_the_service_was_restarted() {
    let all = lines("m-watch-07");
    let (url, log) = Script::default()
        .on(&watch(), Answer::Lines(all[..2].to_vec()))
        .on(
            &watch(),
            Answer::Whole(503, json!({"code": "ServiceUnavailableError", "message": "away"})),
        )
        .on(&watch(), Answer::Lines(all[2..3].to_vec()))
        .on(&watch(), Answer::Lines(all[2..].to_vec()))
        .serve()
        .await;
    let done = run(&url, &["watch", VM]).await;
    let bytes = "running: 50%  20.0B/s  (ETA 5s)  \n";
    let want = format!(
        "running: 1%    syncing\nrunning: 10%  10.0B/s  (ETA 9s)  \n{bytes}{bytes}OK - ready for migration \
         sync or migration switch\n"
    );
    assert_eq!((done.code, done.stdout), (Some(0), want));
    // Once for each time that it was lost, however many attempts it took.
    let told = done.stderr.lines().filter(|line| line.ends_with("; trying again until it answers"));
    assert_eq!(told.count(), 2);
    assert_eq!(log.lock().unwrap().len(), 4);
}

#[tokio::test] // R19
async fn a_failure_is_told_on_stderr_and_by_the_exit_status() {
    let (url, _) = Script::default().on(&watch(), Answer::Lines(lines("m-watch-09"))).serve().await;
    let done = run(&url, &["watch", VM]).await;
    assert_eq!((done.code, done.stderr.as_str()), (Some(1), "Failure: bad\n"));
    assert!(
        done.stdout.ends_with("running: 3%    stopping\nrunning: 1%    syncing\n"),
        "{}",
        done.stdout
    );
}

#[tokio::test]
async fn there_is_no_migration() {
    let recorded = recorded(&["watch"]);
    let missing = json!({"code": "ResourceNotFound", "message": "migration not found"});
    for (answer, want) in [
        (Answer::Whole(404, missing.clone()), "Error: migration not found\n"),
        (recorded["m-watch-01"].answer.clone(), "Error: Invalid vm instance\n"),
        (recorded["m-watch-02"].answer.clone(), "Error: Invalid Parameters (uuid: Invalid UUID)\n"),
    ] {
        let (url, log) = Script::default().on(&watch(), answer).serve().await;
        let done = run(&url, &["watch", VM]).await;
        assert_eq!((done.code, done.stderr.as_str()), (Some(1), want));
        assert_eq!(log.lock().unwrap().len(), 1, "it is not tried again");
    }
    // Of an abort that was accepted it means that it is done.
    let abort = format!("POST /vms/{VM}?action=migrate&migration_action=abort");
    let (url, _) = Script::default()
        .on(&abort, Answer::Whole(202, json!({"job_uuid": "J"})))
        .on(&watch(), Answer::Whole(404, missing))
        .serve()
        .await;
    let done = run(&url, &["abort", VM]).await;
    let want = "# Migration abort running in job J\nMigration was aborted\n";
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), want));
}

#[tokio::test]
async fn ctrl_c_leaves_the_migration_running_and_says_so() {
    let sync = format!("POST /vms/{VM}?action=migrate&migration_action=sync");
    let (url, log) = Script::default()
        .on(&sync, Answer::Whole(202, json!({"job_uuid": "J"})))
        .on(&watch(), Answer::Hangs(lines("m-watch-07")[..2].to_vec()))
        .serve()
        .await;
    let dir = tempfile::tempdir().unwrap();
    let mut running = start(&config(dir.path(), &url), &["sync", VM]);
    while !running.line().await.starts_with("running: 10%") {}
    let done = running.interrupt().await;
    assert_eq!((done.code, done.stdout.as_str()), (Some(130), ""));
    let want = format!("The migration goes on. Watch it with: sdc-migrate watch {VM}\n");
    assert!(done.stderr.starts_with(&want), "{}", done.stderr);
    assert_eq!(log.lock().unwrap().len(), 2, "nothing was asked of the service");
}

#[tokio::test] // R13
async fn a_migration_that_is_queued_says_what_it_waits_for() {
    let begin =
        format!("POST /vms/{VM}?action=migrate&migration_action=begin&migration_automatic=true");
    let migration = json!({"state": "queued", "waits_for": "node N has 5 of 5; place 2"});
    let (url, _) = Script::default()
        .on(&begin, Answer::Whole(202, json!({"job_uuid": "J", "migration": migration})))
        .on(&watch(), Answer::Lines(lines("m-watch-06")))
        .serve()
        .await;
    let done = run(&url, &["migrate", VM]).await;
    let want = "# Migration begin running in job J\nQueued: node N has 5 of 5; place 2\nMigration was successful\n";
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), want));
}
