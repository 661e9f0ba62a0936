// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `get` and `list` against recorded answers.

use pretty_assertions::assert_eq;
use serde_json::Value;

use super::program::run;
use super::service::{Script, recorded};

const VM: &str = "1ca52b3b-7302-4d99-90c8-f1ce9cb62c0b";

#[tokio::test]
async fn get_shows_a_recorded_migration() {
    let recorded = recorded(&["migrate-life"]);
    let (url, _) = Script::default()
        .on(&recorded["m-migrate-life-32"].request, recorded["m-migrate-life-32"].answer.clone())
        .serve()
        .await;
    let done = run(&url, &["get", VM, "--no-ansi"]).await;
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(
        done.stdout.starts_with("State        : paused\nSource server: 96c6fbfa-"),
        "{}",
        done.stdout
    );
    assert!(done.stdout.contains("\nsync [failed]"), "{}", done.stdout);
    let done = run(&url, &["get", "-j", VM]).await;
    let record: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(record["num_sync_phases"], 1, "fields that are not known are kept");
}

#[tokio::test]
async fn list_asks_for_what_is_wanted() {
    let recorded = recorded(&["config"]);
    let two = recorded["m-config-10"].answer.clone();
    let cn = "96c6fbfa-9615-4135-b135-0199b3500ce4";
    let of_cn = format!("GET /migrations?format=raw&state=failed&source_server_uuid={cn}");
    let other = "96c6fbfa-9615-4135-b135-0199b3500ce5";
    let of_other = of_cn.replace(cn, other);
    let (url, log) = Script::default()
        .on("GET /migrations?format=raw&state=active", two.clone())
        .on("GET /migrations?format=raw", two.clone())
        .on("GET /migrations?format=raw&state=aborted", two.clone())
        .on(&of_cn, two.clone())
        .on(&of_other, two)
        .serve()
        .await;
    let count = recorded["m-config-10"].body.as_array().unwrap().len();
    for (args, lines) in [
        (&["list"][..], count + 1),
        (&["list", "-l", "-H"], count),
        (&["list", "-s", "any"], 2 * count + 1),
        (&["list", "-a", "-H"], 2 * count),
        (&["list", "-s", "failed", "-n", cn], count + 1),
        (&["list", "-s", "failed", cn, other, cn], 2 * count + 1), // RFD 34's form
        (&["list", "-p", "-o", "uuid,state", "--sort", "-age"], count),
    ] {
        let done = run(&url, args).await;
        assert_eq!(
            (done.code, done.stdout.lines().count()),
            (Some(0), lines),
            "{args:?}: {}",
            done.stderr
        );
    }
    let done = run(&url, &["list", "-j"]).await;
    assert_eq!(
        serde_json::from_str::<Value>(&done.stdout).unwrap().as_array().unwrap().len(),
        count
    );
    let done = run(&url, &["list", "-o", "nope"]).await;
    assert_eq!(done.code, Some(2));
    let last = log.lock().unwrap().last().unwrap().0.clone();
    assert_eq!(last, "GET /migrations?format=raw&state=active", "the shipped default");
}
