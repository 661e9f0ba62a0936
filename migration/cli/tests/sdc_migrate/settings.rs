// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Settings, flags of VMs, and the comparison of the copies.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::program::run;
use super::service::{Answer, Script};

const VM: &str = "1ca52b3b-7302-4d99-90c8-f1ce9cb62c0b";
const CN: &str = "6cbd5b1a-34e3-4365-a31f-48bc755e87cf";

#[tokio::test] // R13
async fn settings_are_shown_and_changed() {
    let all = json!({"allow_user_migrations": false, "zfs_send_mbps_limit": 500});
    let refused = json!({"code": "ValidationFailed", "message": "Invalid Parameters", "errors": [
        {"field": "max_attempts", "code": "Invalid", "message": "there is no such setting; found 1"},
    ]});
    let (url, log) = Script::default()
        .on("GET /settings", Answer::Whole(200, all.clone()))
        .on(&format!("GET /settings/{CN}"), Answer::Whole(200, json!({})))
        .on("PUT /settings", Answer::Whole(200, all.clone()))
        .on(&format!("PUT /settings/{CN}"), Answer::Whole(409, refused))
        .serve()
        .await;
    let done = run(&url, &["settings"]).await;
    assert_eq!(serde_json::from_str::<Value>(&done.stdout).unwrap(), all);
    assert_eq!(run(&url, &["settings", CN]).await.stdout, "{}\n");
    let done = run(&url, &["set", "zfs_send_mbps_limit", "200"]).await;
    assert_eq!((done.code, done.stdout.contains("500")), (Some(0), true));
    let done = run(&url, &["set", "max_attempts", "1", "--cn", CN]).await;
    let want =
        "sdc-migrate: Invalid Parameters (max_attempts: there is no such setting; found 1)\n";
    assert_eq!((done.code, done.stderr.as_str()), (Some(2), want));
    let bodies: Vec<Value> = log
        .lock()
        .unwrap()
        .iter()
        .filter(|(it, _)| it.starts_with("PUT"))
        .map(|it| it.1.clone())
        .collect();
    assert_eq!(bodies, [json!({"zfs_send_mbps_limit": 200}), json!({"max_attempts": 1})]);
}

fn vm(allowed: Value) -> Value {
    json!({"uuid": VM, "state": "running", "internal_metadata": {"user_migration_allowed": allowed}})
}

#[tokio::test] // R14
async fn a_flag_is_true_itself_and_is_waited_for() {
    let ordered = Answer::Whole(202, json!({"vm_uuid": VM, "job_uuid": "J"}));
    for (args, allowed, want) in [
        (
            &["instance", "allow", VM][..],
            true,
            format!("Success - instance {VM} can now be user migrated.\n"),
        ),
        (
            &["instance", VM, "allow_user_migrations", "true"],
            true,
            format!("Success - instance {VM} can now be user migrated.\n"),
        ),
        (
            &["disallow-instance", VM],
            false,
            format!("Success - user migration not allowed for instance {VM}.\n"),
        ),
    ] {
        let (url, log) = Script::default()
            .on(&format!("POST /vms/{VM}/internal_metadata"), ordered.clone())
            .on(&format!("GET /vms/{VM}"), Answer::Whole(200, vm(json!("true"))))
            .on(&format!("GET /vms/{VM}"), Answer::Whole(200, vm(json!("true"))))
            .on(&format!("GET /vms/{VM}"), Answer::Whole(200, vm(json!(allowed))))
            .serve()
            .await;
        let done = run(&url, args).await;
        assert_eq!((done.code, done.stdout), (Some(0), want), "{}", done.stderr);
        let log = log.lock().unwrap();
        assert_eq!(log[1].1, json!({"user_migration_allowed": allowed}));
        assert_eq!(log.len(), 4, "the text \"true\" is not the flag");
    }
}

#[tokio::test]
async fn what_is_no_flag_of_an_instance_is_said() {
    for args in
        [&["instance", "permit", VM][..], &["instance", VM, "allow_user_migrations", "maybe"]]
    {
        let done = run("http://127.0.0.1:1", args).await;
        assert_eq!(done.code, Some(2), "{}", done.stderr);
        assert!(done.stderr.contains("VM allow_user_migrations true|false"), "{}", done.stderr);
    }
}

#[tokio::test] // M140
async fn a_flag_that_is_set_already_is_not_set_again() {
    for (verb, allowed) in [("allow-instance", true), ("disallow-instance", false)] {
        let (url, log) = Script::default()
            .on(&format!("GET /vms/{VM}"), Answer::Whole(200, vm(json!(allowed))))
            .serve()
            .await;
        let done = run(&url, &[verb, VM]).await;
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        let log = log.lock().unwrap();
        assert!(log.iter().all(|(named, _)| named.starts_with("GET")), "{log:?}");
    }
}

#[tokio::test] // R14
async fn each_vm_of_a_node_is_flagged_and_a_refusal_is_told() {
    const OTHER: &str = "2ca52b3b-7302-4d99-90c8-f1ce9cb62c0b";
    let list = format!(
        "GET /vms?fields=state%2Cinternal_metadata%2Cuuid&server_uuid={CN}&state=active&limit=1000"
    );
    let other = |allowed: bool| {
        let flag = json!({"user_migration_allowed": allowed});
        json!({"uuid": OTHER, "state": "stopped", "internal_metadata": flag})
    };
    let ordered = |vm: &str| Answer::Whole(202, json!({"vm_uuid": vm, "job_uuid": "J"}));
    let migrates = json!({"code": "ConflictError", "message": "it migrates"});
    let script = |answer: Answer| {
        Script::default()
            .on(&list, Answer::Whole(200, json!([vm(json!(null)), other(true)])))
            .on(&list, Answer::Whole(200, json!([vm(json!(false)), other(false)])))
            .on(&format!("POST /vms/{VM}/internal_metadata"), answer)
            .on(&format!("POST /vms/{OTHER}/internal_metadata"), ordered(OTHER))
    };
    let (url, log) = script(ordered(VM)).serve().await;
    let done = run(&url, &["disallow-cn", CN]).await;
    let want = format!("Success - user migrations are no longer allowed on compute node {CN}.\n");
    assert_eq!((done.code, done.stdout), (Some(0), want), "{}", done.stderr);
    let orders = log.lock().unwrap().iter().filter(|(it, _)| it.starts_with("POST")).count();
    assert_eq!(orders, 2);
    let (url, _) = script(Answer::Whole(409, migrates)).serve().await;
    let done = run(&url, &["disallow-cn", CN]).await;
    assert_eq!((done.code, done.stdout.as_str()), (Some(1), ""));
    let want =
        format!("sdc-migrate: {VM}: it migrates\nsdc-migrate: 1 of 2 instances were refused\n");
    assert_eq!(done.stderr, want);
}

#[tokio::test]
async fn copies_that_differ_are_an_exit_status() {
    let dataset =
        |target: &str| json!({"name": "zones/u", "source_guid": "1", "target_guid": target});
    let answer = |equal: bool, target: &str| {
        Answer::Whole(200, json!({"equal": equal, "datasets": [dataset(target)]}))
    };
    let verify = format!("GET /migrations/{VM}/verify");
    let script = Script::default().on(&verify, answer(true, "1")).on(&verify, answer(false, "2"));
    let (url, _) = script.serve().await;
    let done = run(&url, &["verify", VM]).await;
    assert_eq!((done.code, done.stdout.lines().last()), (Some(0), Some("The copies are equal")));
    let done = run(&url, &["verify", "-p", "-o", "dataset,result", VM]).await;
    assert_eq!((done.code, done.stdout.as_str()), (Some(1), "zones/u:another snapshot\n"));
    assert!(done.stderr.starts_with("The copies DIFFER"), "{}", done.stderr);
}
