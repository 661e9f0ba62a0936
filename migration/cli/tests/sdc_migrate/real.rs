// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The program against the real service, which does no rounds: the test stores what they would.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use daemon::Shutdown;
use daemon::http::{Limits, Server, listen};
use migration_core::progress::Latest;
use migration_core::record::Record;
use migration_core::time::Time;
use migration_service::clock::Clock;
use migration_service::front::{Upstream, router};
use migration_service::{Addresses, Agents, Known, Peers, Service};
use pretty_assertions::assert_eq;
use sdc_clients::http::{HttpTransport, Transport};
use sdc_clients::migrations::Ended;
use serde_json::{Value, json};

use super::program::{config, run, start};
use super::service::{Answer, Script};

const VM: &str = "0aa41ab0-2046-4d53-a82c-b9876136d4f1";
const SOURCE: &str = "96c6fbfa-9615-4135-b135-0199b3500ce4";
const TARGET: &str = "6cbd5b1a-34e3-4365-a31f-48bc755e87cf";

/// Starts the service in front of a VMAPI that has one VM. Returns its address and itself; it
/// does no rounds.
async fn service() -> (String, Service) {
    let vm = json!({"uuid": VM, "owner_uuid": TARGET, "server_uuid": SOURCE, "state": "running"});
    let vms = Script::default().on(&format!("GET /vms/{VM}"), Answer::Whole(200, vm));
    let (vmapi, _) = vms.serve().await;
    let transport: Arc<dyn Transport> = Arc::new(HttpTransport::new().unwrap());
    let addresses = Addresses {
        vmapi: vmapi.clone(),
        cnapi: vmapi.clone(),
        napi: vmapi.clone(),
        imgapi: vmapi.clone(),
        papi: vmapi.clone(),
    };
    let peers = Peers::new(&addresses, &transport).unwrap();
    let store = store::Store::in_memory().unwrap();
    let (listener, address) = listen((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let url = format!("http://{address}");
    let known = Known { port: 0, urls: BTreeMap::new() };
    let agents = Agents::new(known, peers.cnapi.clone(), Arc::clone(&transport));
    let opened = Service::open(&store, peers, agents, Clock::System, &url);
    let opened = opened.await.unwrap();
    for entry in ended() {
        opened.records.history.put(&entry).await.unwrap();
    }
    let routes = router(opened.clone(), Upstream::new(&vmapi, transport).unwrap());
    tokio::spawn(Server::new(Limits::default(), Shutdown::new()).serve(listener, routes));
    (url, opened)
}

/// What the service's history has.
fn ended() -> [Ended; 2] {
    let entry = |id: &str, what: &str, at: &str| Ended {
        id: id.into(),
        what: what.into(),
        outcome: "successful".into(),
        ended: at.into(),
        vm_uuid: Some(VM.into()),
        cn_uuids: vec![SOURCE.into(), TARGET.into()],
        from: Some(SOURCE.into()),
        to: Some(TARGET.into()),
        by: Some("ops".into()),
        ..Ended::default()
    };
    let moved = entry("a", "migrate", "2026-02-01T10:02:05.000Z");
    let moved = Ended { downtime_ms: Some(2345), bytes: Some(2048), ..moved };
    [moved, entry("b", "finalize", "2026-02-02T10:00:00.000Z")]
}

#[tokio::test] // M147
async fn the_history_of_the_service_is_listed_with_downtime() {
    let (url, _service) = service().await;
    let columns = "ended,vm,what,from,downtime,bytes,by";
    let all = "\
2026-02-02T10:00:00.000Z  0aa41ab0  finalize  96c6fbfa-9615-4135-b135-0199b3500ce4  -     -       ops
2026-02-01T10:02:05.000Z  0aa41ab0  migrate   96c6fbfa-9615-4135-b135-0199b3500ce4  2.3s  2.0KiB  ops
";
    for (flags, lines) in [
        (vec!["--vm", VM], 2),
        (vec!["--cn", TARGET], 2),
        (vec!["--since", "2026-02-02T00:00:00Z"], 1),
        (vec!["--owner", SOURCE], 0),
        (vec!["--cn", VM], 0),
    ] {
        let done = run(&url, &[&["history", "-H", "-o", columns], flags.as_slice()].concat()).await;
        let want: String = all.split_inclusive('\n').take(lines).collect();
        let cells = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(cells(&done.stdout), cells(&want), "{flags:?}: {}", done.stderr);
    }
    let done = run(&url, &["history", "-j"]).await;
    let listed: Vec<Ended> = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(listed, ended().into_iter().rev().collect::<Vec<_>>());
    let done = run(&url, &["why", VM]).await;
    assert!(
        done.stdout.contains("finalize successful, 2026-02-02T10:00:00.000Z by ops"),
        "{done:?}"
    );
    assert_eq!(run(&url, &["history", "-o", "nope"]).await.code, Some(2));
    assert_eq!(run(&url, &["history", "--since", "soon"]).await.code, Some(2));
}

/// Stores the migration's record, as a round does.
async fn store(service: &Service, phase: &str, state: &str) {
    let mut entry = json!({
        "type": "progress", "phase": phase, "state": "running", "current_progress": 1, "total_progress": 100,
        "message": "syncing", "started_timestamp": "2026-02-01T10:01:00.000Z",
    });
    if state != "running" {
        entry["state"] = json!("successful");
        entry["finished_timestamp"] = json!("2026-02-01T10:02:05.000Z");
    }
    let record = json!({
        "action": "begin", "automatic": false, "created_timestamp": "2026-02-01T10:00:00.000Z",
        "id": "09576635-e0bb-49d3-a242-a23a69c2c932", "num_sync_phases": 1, "phase": phase, "state": state,
        "progress_history": [entry], "source_server_uuid": SOURCE, "target_server_uuid": TARGET,
        "vm_uuid": VM, "target_vm_uuid": VM,
    });
    service.records.overwrite(&Record::read(&record).unwrap()).await.unwrap();
}

#[tokio::test]
async fn the_service_and_the_command_understand_each_other() {
    let (url, service) = service().await;
    let done = run(&url, &["get", VM]).await;
    let said =
        format!("{VM} does not migrate: it is running on {SOURCE}\nError: migration not found\n");
    assert_eq!((done.code, done.stderr), (Some(1), said));

    store(&service, "sync", "paused").await;
    let done = run(&url, &["get", VM, "--no-ansi"]).await;
    assert!(done.stdout.contains("State        : paused\n"), "{done:?}");
    assert!(done.stdout.contains(&format!("Target server: {TARGET}\n")), "{}", done.stdout);
    assert!(done.stdout.contains("sync [successful]"), "{}", done.stdout);
    let done = run(&url, &["list", "-p", "-o", "uuid,phase,state,runtime"]).await;
    assert_eq!(done.stdout, format!("{VM}:sync:paused:1m\n"));
    let done = run(&url, &["list", "-H", "-s", "failed"]).await;
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), ""));
    for (args, want) in [
        (["pause", VM], "Pause requires a running migration sync action"),
        (["finalize", VM], "Finalize only works on a successful migration"),
        (["rollback", VM], "Rollback only works on a successful migration"),
        (["unschedule", VM], "The migration is not scheduled"),
    ] {
        let done = run(&url, &args).await;
        assert_eq!((done.code, done.stderr), (Some(1), format!("Error: {want}\n")));
    }
    let done = run(&url, &["watch", VM]).await;
    assert_eq!(done.stdout, "OK - ready for migration sync or migration switch\n");
}

#[tokio::test] // R19
async fn a_watch_of_the_service_shows_what_its_rounds_report() {
    let (url, service) = service().await;
    store(&service, "sync", "running").await;
    let dir = tempfile::tempdir().unwrap();
    let mut watch = start(&config(dir.path(), &url), &["watch", VM]);
    assert_eq!(watch.line().await, "running: 1%    syncing");
    let event = json!({
        "type": "progress", "phase": "sync", "state": "running", "current_progress": 10,
        "total_progress": 100, "eta_ms": 9000, "transfer_bytes_second": 10,
    });
    let of = Time::parse("2026-02-01T10:01:00.000Z");
    service.records.news.put_event(VM.parse().unwrap(), &Latest { of, event }).await.unwrap();
    assert_eq!(watch.line().await, "running: 10%  10.0B/s  (ETA 9s)  ");
    store(&service, "sync", "paused").await;
    assert_eq!(watch.line().await, "OK - ready for migration sync or migration switch");
}

#[tokio::test] // R13
async fn settings_of_the_service_are_shown_and_changed() {
    let (url, _service) = service().await;
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let done = run(&url, &["settings"]).await;
    assert_eq!(json(&done.stdout)["zfs_send_mbps_limit"], 500, "{done:?}");
    let done = run(&url, &["set", "zfs_send_mbps_limit", "200"]).await;
    assert_eq!(json(&done.stdout)["zfs_send_mbps_limit"], 200, "{done:?}");
    let done = run(&url, &["set", "max_running_migrations_per_cn", "2", "--cn", TARGET]).await;
    assert_eq!(json(&done.stdout), json!({"max_running_migrations_per_cn": 2}), "{done:?}");
    assert_eq!(run(&url, &["settings", SOURCE]).await.stdout, "{}\n");
    let done = run(&url, &["set", "max_running_migrations_per_cn", "null", "--cn", TARGET]).await;
    assert_eq!(done.stdout, "{}\n");
    for (key, value, cn) in
        [("zfs_send_mbps_limit", "0", None), ("max_attempts", "3", Some(TARGET))]
    {
        let args = [&["set", key, value][..], &cn.map_or(vec![], |cn| vec!["--cn", cn])].concat();
        let done = run(&url, &args).await;
        assert_eq!(done.code, Some(2));
        assert!(
            done.stderr.starts_with("sdc-migrate: ") && done.stderr.contains(key),
            "{}",
            done.stderr
        );
    }
}
