// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Actions: the order that goes out, and what is printed until the end.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::program::{run, run_with};
use super::service::{Answer, Script, recorded};

const VM: &str = "1ca52b3b-7302-4d99-90c8-f1ce9cb62c0b";
const CN: &str = "6cbd5b1a-34e3-4365-a31f-48bc755e87cf";

fn migrate(action: &str) -> String {
    format!("POST /vms/{VM}?action=migrate&migration_action={action}")
}

fn watch() -> String {
    format!("GET /migrations/{VM}/watch")
}

fn end(phase: &str, state: &str) -> Value {
    json!({"type": "end", "phase": phase, "state": state})
}

#[tokio::test]
async fn a_migration_step_by_step_as_recorded() {
    let recorded = recorded(&["migrate-life", "watch"]);
    let job = |id: &str| recorded[id].body["job_uuid"].as_str().unwrap().to_owned();
    let begin = format!("{}&override_server_uuid={CN}", migrate("begin"));
    let mut script = Script::default();
    for (id, request) in [
        ("m-migrate-life-03", &begin),
        ("m-migrate-life-19", &migrate("sync")),
        ("m-migrate-life-34", &migrate("switch")),
        ("m-migrate-life-52", &migrate("finalize")),
    ] {
        assert_eq!(recorded[id].request, *request);
        script = script.on(request, recorded[id].answer.clone());
    }
    for id in ["m-watch-03", "m-watch-07", "m-watch-06"] {
        script = script.on(&watch(), recorded[id].answer.clone());
    }
    let (url, log) = script.serve().await;
    let steps = [
        (
            &["begin", "-n", CN, VM][..],
            format!(
                "# Migration begin running in job {}\nOK - ready for migration sync\n",
                job("m-migrate-life-03")
            ),
        ),
        (
            &["sync", VM],
            format!(
                "# Migration sync running in job {}\nrunning: 1%    syncing\nrunning: 10%  10.0B/s  (ETA 9s)  \n\
                 running: 50%  20.0B/s  (ETA 5s)  \nOK - ready for migration sync or migration switch\n",
                job("m-migrate-life-19")
            ),
        ),
        (
            &["switch", VM],
            format!(
                "# Migration switch running in job {}\nMigration was successful\n",
                job("m-migrate-life-34")
            ),
        ),
        (&["finalize", VM], "Migration was finalized\n".to_owned()),
    ];
    for (args, want) in steps {
        let done = run(&url, args).await;
        assert_eq!(
            (done.code, done.stdout, done.stderr),
            (Some(0), want, String::new()),
            "{args:?}"
        );
    }
    let log = log.lock().unwrap();
    let orders: Vec<&str> =
        log.iter().map(|(named, _)| named.as_str()).filter(|it| it.starts_with("POST")).collect();
    assert_eq!(orders, [begin, migrate("sync"), migrate("switch"), migrate("finalize")]);
    assert!(log.iter().all(|(named, body)| named.starts_with("GET") || *body == json!({})));
}

fn signs() -> String {
    format!("GET /migrations/{VM}/signs")
}

/// The last signs of life of the source's node, and why it is not taken for dead.
fn signs_of(alive: Option<&str>) -> Answer {
    let says = format!("CNAPI had the last heartbeat of {CN} 900 s ago");
    let source = json!({"cn": CN, "answers": false, "says": says, "alive": alive});
    Answer::Whole(200, json!({"source": source, "target": null}))
}

#[tokio::test] // M105
async fn a_node_that_may_be_alive_is_not_declared_dead_before_the_operator_is_asked() {
    for (alive, really, told) in [
        (
            Some("it may be alive; use --really"),
            false,
            "sdc-migrate: it may be alive; use --really\n",
        ),
        (Some("it may be alive; use --really"), true, "900 s ago. Confirm it with -y\n"),
        (None, false, "900 s ago. Confirm it with -y\n"),
    ] {
        let record = json!({"vm_uuid": VM, "source_server_uuid": CN, "target_server_uuid": "T"});
        let (url, log) = Script::default()
            .on(&format!("GET /migrations/{VM}?format=raw"), Answer::Whole(200, record))
            .on(&signs(), signs_of(alive))
            .on(&format!("GET /vms/{VM}"), Answer::Whole(200, json!({"uuid": VM, "state": "x"})))
            .serve()
            .await;
        let flag = if really { &["--really"][..] } else { &[] };
        let args = [&["switch", "--source-dead", CN][..], flag, &[VM]].concat();
        let done = run(&url, &args).await;
        assert!(done.stderr.ends_with(told), "{args:?}: {}", done.stderr);
        let log = log.lock().unwrap();
        assert!(log.iter().all(|(named, _)| named.starts_with("GET")), "nothing was ordered");
    }
}

#[tokio::test]
async fn each_flag_is_its_parameter() {
    let accepted = Answer::Whole(202, json!({"job_uuid": "J", "migration": {"state": "running"}}));
    let record = json!({"vm_uuid": VM, "source_server_uuid": "S", "target_server_uuid": "T"});
    let unknown = json!({"code": "ResourceNotFound", "message": "VM not found"});
    let verify = format!("GET /migrations/{VM}/verify");
    for (args, parameters, phase, last) in [
        (
            &["migrate", VM][..],
            "begin&migration_automatic=true",
            "switch",
            "Migration was successful",
        ),
        (
            &["begin", "--affinity", "zone!=a", VM],
            "begin&affinity=zone%21%3Da",
            "begin",
            "Migration was successful",
        ),
        (&["abort", "--force", VM], "abort&force=true", "abort", "Migration was aborted"),
        (&["rollback", VM], "rollback", "rollback", "Migration was rolled back"),
        (
            &["rollback", "-y", "--discard", VM],
            "rollback&discard=true",
            "rollback",
            "Migration was rolled back",
        ),
        (
            &["rollback", "--target-dead", CN, VM],
            "rollback&target_dead=6cbd5b1a-34e3-4365-a31f-48bc755e87cf",
            "rollback",
            "Migration was rolled back",
        ),
        (
            &["switch", "-y", "--source-dead", CN, VM],
            "switch&source_dead=6cbd5b1a-34e3-4365-a31f-48bc755e87cf",
            "switch",
            "Migration was successful",
        ),
        (
            &["switch", "-y", "--source-dead", CN, "--really", VM],
            "switch&source_dead=6cbd5b1a-34e3-4365-a31f-48bc755e87cf&really=true",
            "switch",
            "Migration was successful",
        ),
        (&["pause", VM], "pause", "sync", "Migration was successful"),
    ] {
        let script = Script::default()
            .on(&migrate(parameters), accepted.clone())
            .on(&watch(), Answer::Lines(vec![end(phase, "successful")]))
            .on(&format!("GET /migrations/{VM}?format=raw"), Answer::Whole(200, record.clone()))
            .on(&verify, Answer::Whole(200, json!({"equal": false})))
            .on(&signs(), signs_of(None))
            .on(&format!("GET /vms/{VM}"), Answer::Whole(404, unknown.clone()));
        let (url, _) = script.serve().await;
        let done = run(&url, args).await;
        let want = format!(
            "# Migration {} running in job J\n{last}\n",
            parameters.split('&').next().unwrap()
        );
        assert_eq!(
            (done.code, done.stdout, done.stderr),
            (Some(0), want, String::new()),
            "{args:?}"
        );
    }
}

#[tokio::test]
async fn what_loses_data_is_confirmed_and_names_the_loss() {
    let entry = |phase: &str| {
        json!({
            "phase": phase, "state": "successful", "started_timestamp": "2026-02-01T10:00:00.000Z",
            "finished_timestamp": "2026-02-01T10:30:00.000Z",
        })
    };
    let record = json!({
        "vm_uuid": VM, "target_server_uuid": "T", "progress_history": [entry("sync"), entry("switch")],
    });
    let (url, log) = Script::default()
        .on(&format!("GET /migrations/{VM}?format=raw"), Answer::Whole(200, record))
        .on(&signs(), signs_of(None))
        .on(
            &format!("GET /migrations/{VM}/verify"),
            Answer::Whole(200, json!({"written_bytes": 2048})),
        )
        .on(
            &format!("GET /vms/{VM}"),
            Answer::Whole(200, json!({"uuid": VM, "state": "x", "alias": "web"})),
        )
        .serve()
        .await;
    for (args, loss) in [
        (&["rollback", "--discard", VM][..], "What it wrote on T since 2026-02-01T10:30:00.000Z"),
        (
            &["switch", "--source-dead", CN, VM],
            "What it wrote there since 2026-02-01T10:00:00.000Z",
        ),
    ] {
        let done = run(&url, args).await;
        assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""), "{args:?}");
        assert!(
            done.stderr.contains("1ca52b3b (web)") && done.stderr.contains(loss),
            "{}",
            done.stderr
        );
        assert!(done.stderr.ends_with("Confirm it with -y\n"), "{}", done.stderr);
    }
    let done = run(&url, &["finalize", "--force", VM]).await;
    assert!(done.code == Some(2) && done.stderr.contains("the only whole copy"), "{}", done.stderr);
    let done = run(&url, &["rollback", "--discard", VM]).await;
    assert!(done.stderr.contains("is LOST: 2.0KiB."), "{}", done.stderr);
    assert!(
        log.lock().unwrap().iter().all(|(named, _)| named.starts_with("GET")),
        "nothing was ordered"
    );
}

#[tokio::test] // M141
async fn what_the_state_refuses_is_said_before_a_flag_is_asked_for() {
    let recorded = recorded(&["migrate-life"]);
    let paused = &recorded["m-migrate-life-32"];
    assert_eq!((&paused.body["phase"], &paused.body["state"]), (&json!("sync"), &json!("paused")));
    let missing = json!({"code": "ResourceNotFound", "message": "migration not found"});
    for (record, args, said) in [
        (
            paused.answer.clone(),
            &["finalize", "--force", VM][..],
            "Finalize only works on a successful migration",
        ),
        (
            paused.answer.clone(),
            &["rollback", "--discard", VM],
            "Rollback only works on a successful migration",
        ),
        (Answer::Whole(404, missing), &["finalize", "--force", VM], "migration not found"),
    ] {
        let (url, log) = Script::default().on(&paused.request, record).serve().await;
        let done = run(&url, args).await;
        assert_eq!((done.code, done.stdout.as_str()), (Some(1), ""), "{args:?}: {}", done.stderr);
        assert!(done.stderr.starts_with(&format!("Error: {said}")), "{args:?}: {}", done.stderr);
        assert!(!done.stderr.contains("-y") && !done.stderr.contains("--force"), "{}", done.stderr);
        let log = log.lock().unwrap();
        assert!(log.iter().all(|(named, _)| named.starts_with("GET")), "nothing was ordered");
    }
}

#[tokio::test]
async fn each_recorded_refusal_is_told_in_its_words() {
    let recorded = recorded(&["migrate-errors", "migrate-table", "migrate-life"]);
    let names = ["begin", "sync", "switch", "pause", "abort", "rollback", "finalize", "estimate"];
    let mut checked = 0;
    for (id, exchange) in &recorded {
        let Answer::Whole(status, body) = &exchange.answer else { continue };
        let action = exchange.request.split_once("?action=migrate&migration_action=");
        let Some((path, action)) = action else { continue };
        let vm = path.strip_prefix("POST /vms/").unwrap();
        let is_ours = names.contains(&action) && uuid::Uuid::try_parse(vm).is_ok();
        if !is_ours || *status < 400 || checked > 60 {
            continue;
        }
        let script = Script::default().on(&exchange.request, exchange.answer.clone());
        let (url, _) = script.serve().await;
        let done = run(&url, &[action, vm]).await;
        let want = format!("Error: {}", body["message"].as_str().unwrap());
        assert_eq!((done.code, done.stdout.as_str()), (Some(1), ""), "{id}");
        let (said, one) = (&done.stderr, done.stderr.lines().count() == 1);
        assert!(said.starts_with(&want) && one, "{id}: {said}");
        checked += 1;
    }
    assert!(checked > 50, "{checked}");
}

#[tokio::test]
async fn wrong_parameters_are_named() {
    let recorded = recorded(&["migrate-errors"]);
    let refusal = recorded["m-migrate-errors-20"].answer.clone();
    let request = format!("{}&override_server_uuid={CN}", migrate("begin"));
    let one = json!([{"uuid": CN, "hostname": "node1"}]);
    let (url, _) = Script::default()
        .on(&request, refusal)
        .on("GET /servers?limit=1000&offset=0", Answer::Whole(200, one))
        .serve()
        .await;
    let done = run(&url, &["begin", "-n", CN, VM]).await;
    let want = "Error: Invalid parameters: override_server_uuid (x) is not a valid UUID \
                (override_server_uuid: Invalid UUID)\n";
    assert_eq!((done.code, done.stderr.as_str()), (Some(1), want));
    let named = run(&url, &["begin", "-n", "node1", VM]).await;
    assert_eq!(named.stderr, done.stderr, "a node by its name");
    for args in [["begin", "-n", "node2", VM].as_slice(), &["migrate", VM, "node2"]] {
        let done = run(&url, args).await;
        let want = "sdc-migrate: no node has the host name \"node2\"";
        assert!(
            done.stderr.starts_with(want) && done.stderr.ends_with("did you mean node1?\n"),
            "{}",
            done.stderr
        );
        assert_eq!(done.code, Some(2));
    }
}

#[tokio::test]
async fn an_estimate_is_the_services_json() {
    let full = json!({"total_seconds": 120, "downtime_seconds": 20, "size_bytes": 10});
    let recorded = recorded(&["migrate-life"]);
    let (url, _) = Script::default()
        .on(&migrate("estimate"), recorded["m-migrate-life-02"].answer.clone())
        .on(&format!("{}&format=rfd34", migrate("estimate")), Answer::Whole(200, full.clone()))
        .serve()
        .await;
    let done = run(&url, &["estimate", VM]).await;
    assert_eq!(done.stdout, "{\n  \"size\": 1234567890\n}\n");
    let done = run(&url, &["estimate", "--full", VM]).await;
    assert_eq!(serde_json::from_str::<Value>(&done.stdout).unwrap(), full);
}

#[tokio::test]
async fn a_schedule_is_told_with_its_time() {
    let at = "2026-03-01T02:00:00.000Z";
    let schedule = format!("{}&scheduled_timestamp=2+days", migrate("schedule"));
    let migration = json!({"scheduled_timestamp": at});
    let (url, _) = Script::default()
        .on(&schedule, Answer::Whole(202, json!({"job_uuid": "J", "migration": migration})))
        .on(&schedule, Answer::Whole(200, json!({"migration": migration})))
        .on(&migrate("unschedule"), Answer::Whole(200, json!({"migration": {}})))
        .on(&watch(), Answer::Lines(vec![end("sync", "scheduled")]))
        .serve()
        .await;
    let done = run(&url, &["schedule", VM, "2 days"]).await;
    let want = format!(
        "Scheduling migration: it begins and syncs now, and switches at {at}\nMigration scheduled\n"
    );
    assert_eq!((done.code, done.stdout), (Some(0), want));
    let done = run(&url, &["schedule", VM, "2 days"]).await;
    assert_eq!((done.code, done.stdout), (Some(0), format!("The migration switches at {at}\n")));
    let done = run(&url, &["unschedule", VM]).await;
    assert_eq!(done.stdout, "The migration is no longer scheduled\n");
}

#[tokio::test]
async fn a_vm_is_found_by_alias_or_by_the_beginning_of_its_uuid() {
    let predicate = "%7B%22eq%22%3A%5B%22alias%22%2C%22NAME%22%5D%7D";
    let named = |name: &str| {
        let predicate = predicate.replace("NAME", name);
        format!(
            "GET /vms?fields=uuid%2Calias%2Cstate&state=active&predicate={predicate}&limit=1000"
        )
    };
    let record = json!({"vm_uuid": VM, "phase": "sync", "state": "paused"});
    let web = json!({"uuid": VM, "state": "running", "alias": "web"});
    // A tenant's choice of a name.
    let other = json!({"uuid": "88888888-4", "state": "running", "alias": "1ca52b3b"});
    let all = "GET /vms?fields=uuid%2Calias%2Cstate&state=active&limit=1000";
    let (url, _) = Script::default()
        .on(&named("web"), Answer::Whole(200, json!([web])))
        .on(all, Answer::Whole(200, json!([web, other])))
        .on(&named("none"), Answer::Whole(200, json!([])))
        .on("GET /migrations?format=raw", Answer::Whole(200, json!([record])))
        .on(&watch(), Answer::Lines(vec![end("sync", "paused")]))
        .serve()
        .await;
    for name in ["web", "1ca5"] {
        let done = run(&url, &["watch", name]).await;
        let want = "OK - ready for migration sync or migration switch\n";
        assert_eq!((done.code, done.stdout.as_str()), (Some(0), want), "{}", done.stderr);
    }
    let done = run(&url, &["watch", "1ca52b3b"]).await;
    assert!(done.code == Some(2) && done.stderr.contains("fits 2 VMs"), "{}", done.stderr);
    let done = run(&url, &["watch", "none"]).await;
    assert_eq!(done.code, Some(2));
    assert!(
        done.stderr.starts_with("sdc-migrate: no VM has the alias \"none\""),
        "{}",
        done.stderr
    );
}

#[tokio::test]
async fn usage_and_configuration_are_told_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.json");
    std::fs::write(&file, "{}").unwrap();
    let config = file.to_str().unwrap();
    for (args, code, part) in [
        (&["get"][..], 2, "<VM>"),
        (&["list", "--nope"], 2, "--nope"),
        (&["get", VM], 2, "where is migration-service? Give --url, $VMAPI_URL"),
        (&["get", VM, "--url", "nope"], 2, "the base URL cannot be read"),
        (
            &["get", VM, "--url", "http://127.0.0.1:1"],
            1,
            "sdc-migrate: nothing answers on http://127.0.0.1:1: ",
        ),
        (
            &["set", "max_attempts", "many", "--url", "http://127.0.0.1:1"],
            2,
            "expected a number, true, false or null",
        ),
        (
            &["set", "x", "1", "--url", "http://127.0.0.1:1"],
            2,
            "no setting \"x\"; the settings are allow_user_migrations, max_running",
        ),
        (&["list", "-s", "foo", "--url", "http://127.0.0.1:1"], 2, "values: any, all, active"),
    ] {
        let done = run_with(config, args).await;
        assert_eq!((done.code, done.stdout.as_str()), (Some(code), ""), "{args:?}");
        assert!(done.stderr.contains(part) && done.stderr.lines().count() == 1, "{}", done.stderr);
    }
    for (args, part) in [
        (&["--version"][..], "sdc-migrate 0."),
        (&["--help"], "130 left with Ctrl-C"),
        (&["completions", "bash"], "evacuate"),
        (&["man"], ".TH"),
    ] {
        let done = run_with(config, args).await;
        assert!(done.code == Some(0) && done.stdout.contains(part), "{args:?}: {}", done.stderr);
    }
}

#[tokio::test] // M125
async fn a_migration_is_adopted_with_what_the_service_says_of_it() {
    let adopt = format!("POST /migrations/{VM}/adopt");
    let migration = json!({
        "id": CN, "vm_uuid": VM, "phase": "switch", "state": "failed",
        "error": "adopted in the middle of a switch: switch goes on with it",
    });
    let script = Script::default().on(&adopt, Answer::Whole(200, migration.clone()));
    let named = Answer::Whole(200, json!({"vm_uuid": VM, "phase": "sync", "state": "paused"}));
    let (url, log) = script.on(&format!("{adopt}?other={CN}"), named).serve().await;
    // Operators ask at a socket of their own.
    let dir = tempfile::tempdir().unwrap();
    let (config, socket) = (dir.path().join("config.json"), dir.path().join("control.sock"));
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let at = url.trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut far = tokio::net::TcpStream::connect(&at).await.unwrap();
            let _ended = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        }
    });
    let named = json!({"vmapi_url": url, "control_socket": socket});
    std::fs::write(&config, named.to_string()).unwrap();
    let config = config.display().to_string();
    let done = run_with(&config, &["adopt", VM]).await;
    let want = "The migration was adopted: switch failed\nadopted in the middle of a switch: switch goes on with it\n";
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), want), "{done:?}");
    let done = run_with(&config, &["adopt", "--other", CN, VM]).await;
    assert_eq!(done.stdout, "The migration was adopted: sync paused\n", "{done:?}");
    assert_eq!(log.lock().unwrap().len(), 2);
}
