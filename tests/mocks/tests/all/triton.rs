// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `mock-triton` as a process.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use sdc_clients::Http;
use sdc_clients::http::Call;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const LATE: Duration = Duration::from_secs(60);

const SERVICES: [&str; 6] = ["napi", "vmapi", "cnapi", "papi", "imgapi", "workflow"];

/// The program, and a client of each service.
#[allow(clippy::disallowed_methods)] // It starts the program under test.
async fn start(args: &[&Path]) -> (Child, [Http; 6]) {
    let mut mocks = Command::new(env!("CARGO_BIN_EXE_mock-triton"))
        .args(args)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(mocks.stdout.take().unwrap()).lines();
    let mut service = async |name: &str| {
        let line = tokio::time::timeout(LATE, lines.next_line()).await.unwrap().unwrap().unwrap();
        let url = line.strip_prefix(&format!("{name} listening ")).expect(&line).to_owned();
        Http::new(&url, "test/1").unwrap()
    };
    let mut clients = Vec::new();
    for name in SERVICES {
        clients.push(service(name).await);
    }
    (mocks, clients.try_into().unwrap())
}

#[tokio::test]
async fn sigterm_ends_it_with_0() {
    let (mut mocks, [napi, ..]) = start(&[]).await;
    // A connection that stays open is no reason to stay.
    napi.execute(Call::get(&["ping"])).await.unwrap();
    let pid = rustix::process::Pid::from_raw(mocks.id().unwrap() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let ended = tokio::time::timeout(LATE, mocks.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(0), "{ended}");
}

#[tokio::test]
async fn each_door_that_is_listed_opens() {
    let (_mocks, services) = start(&[]).await;
    let napi = &services[0];
    let mut opened = 0;
    for service in &services {
        let listed = service.execute(Call::get(&["_mock"])).await.unwrap().object().unwrap();
        for door in listed["doors"].as_object().unwrap().keys() {
            let (method, path) = door.split_once(" /_mock/").unwrap();
            if path.is_empty() {
                continue;
            }
            let body = match path {
                "era" => json!({"era": "rfd58"}),
                "initializing" => json!({"initializing": false}),
                "seed" if service.base() == napi.base() => json!({"nic_tags": [{"name": "admin"}]}),
                "seed" => json!([{"uuid": "40000000-0000-4000-8000-000000000001"}]),
                "tasks" => json!({"id": "t", "status": "complete"}),
                "remote" => json!({"source": "http://a", "image": {}}),
                // There is no such ticket: the door says so, and no more.
                "tickets" => continue,
                _ => json!([]),
            };
            let call = Call::new(method.parse().unwrap(), &["_mock", path]);
            let call = if matches!(method, "POST" | "PUT") { call.json(&body) } else { call };
            service.execute(call).await.unwrap_or_else(|error| panic!("{door}: {error}"));
            opened += 1;
        }
    }
    assert_eq!(opened, 11 + 10 + 10 + 3 * 8 + 1);
    let unknown = napi.execute(Call::get(&["_mock", "nonsense"])).await.unwrap_err();
    assert!(unknown.message().contains("GET /_mock/"), "{unknown}");
}

#[tokio::test]
async fn seeds_are_served_and_faults_apply() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: Value| {
        let path = dir.path().join(name);
        std::fs::write(&path, content.to_string()).unwrap();
        path
    };
    let vm = "40000000-0000-4000-8000-000000000001";
    let nic = json!({"mac": "90:b8:d0:00:00:01", "owner_uuid": vm, "belongs_to_uuid": vm, "belongs_to_type": "zone"});
    let vms = json!([{"uuid": vm, "state": "running"}]);
    let packages = json!([{"uuid": "p", "name": "p1"}]);
    let seed = file("seed.json", json!({"napi": {"nics": [nic]}, "vmapi": vms, "papi": packages}));
    let unavailable = json!({"path": "/vms", "action": {"do": "status", "status": 503}});
    let refused = json!({"path": "/allocate", "action": {"do": "status", "status": 409}});
    let faults = file("faults.json", json!({"vmapi": [unavailable], "cnapi": [refused]}));
    let (_mocks, [napi, vmapi, cnapi, papi, ..]) =
        start(&["--seed".as_ref(), &seed, "--faults".as_ref(), &faults]).await;
    let nics = napi.execute(Call::get(&["nics"])).await.unwrap().json::<Value>("NICs").unwrap();
    assert_eq!(nics[0]["mac"], nic["mac"]);
    let found = vmapi.execute(Call::get(&["vms", vm])).await.unwrap();
    assert_eq!(found.json::<Value>("the VM").unwrap()["state"], "running");
    let found = papi.execute(Call::get(&["packages", "p"])).await.unwrap();
    assert_eq!(found.json::<Value>("the package").unwrap()["name"], "p1");
    let refused = cnapi.execute(Call::new(http::Method::POST, &["allocate"])).await.unwrap_err();
    assert_eq!(refused.class(), sdc_clients::Class::Conflict);
    // A write, since reads are tried again.
    let refused = vmapi.execute(Call::new(http::Method::PUT, &["vms"])).await.unwrap_err();
    assert_eq!(refused.class(), sdc_clients::Class::Unavailable);
}
