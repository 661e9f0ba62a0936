// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `sdc-pkgadm` against the service, as an operator runs it.

use std::process::{Command, Output};
use std::sync::Arc;

use daemon::{Shutdown, Tasks};
use mocks::papi;
use mocks::transport::InProcess;
use sdc_clients::Http;
use serde_json::{Value, json};
use store::Store;
use volapi::config::Config;
use volapi::peers::Peers;
use volapi::records::Records;
use volapi::service::Service;

const COMPUTE: &str = "aaaa0010-1111-4111-8111-000000000010";
const FILE: &str = r#"{"instance": "0b4a4a3e-8b7c-4a09-9c3e-2a5d8f5e0c11", "vmapi": {"url": "http://a"},
    "cnapi": {"url": "http://a"}, "papi": {"url": "http://a"}, "napi": {"url": "http://a"},
    "imgapi": {"url": "http://a"}, "workflow": {"url": "http://a"}, "rfd26": true}"#;

/// Starts volapi over a PAPI that has one package of 10 GiB; returns its address.
async fn volapi() -> String {
    let packages = papi::Store::default();
    let compute =
        json!({"uuid": COMPUTE, "name": "sdc_volume_nfs_10", "quota": 10240, "active": true});
    packages.put(compute.as_object().unwrap().clone());
    let transport = Arc::new(InProcess::new(packages));
    let papi = Http::with_transport("http://papi", "test", transport).unwrap();
    let none = || Http::new("http://127.0.0.1:1", "test").unwrap();
    let peers = Peers {
        vmapi: none(),
        cnapi: none(),
        papi,
        napi: none(),
        imgapi: none(),
        workflow: none(),
        snapshots: None,
    };
    let records = Records::open(Store::in_memory().unwrap()).await.unwrap();
    let settings = Config::from_json(FILE).unwrap().settings.clone();
    let service = Arc::new(Service::new(records, peers, settings));
    let routes = volapi::http::router(service, Tasks::new(Shutdown::new()), "test");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    url
}

async fn run(url: &str, args: &[&str]) -> Output {
    #[allow(clippy::disallowed_methods)] // the program under test
    let mut command = Command::new(env!("CARGO_BIN_EXE_sdc-pkgadm"));
    command.args(args).env("VOLAPI_URL", url).env("NO_COLOR", "1");
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

async fn printed(url: &str, args: &[&str]) -> String {
    let done = run(url, args).await;
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // V121
async fn packages_are_made_listed_and_turned_off() {
    let url = volapi().await;
    let add = ["volume", "add", "--size", "10G", "--storage-instance-pkg", COMPUTE];
    let add = [&add[..], &["--description", "ten: GiB", "--type", "tritonnfs"]].concat();
    let made = printed(&url, &add).await;
    let uuid = made.trim_end();
    assert_eq!(
        printed(&url, &["volume", "list", "-H", "-p", "-o", "name,size,active,uuid,description"])
            .await,
        format!("nfs1-10g:10G:true:{uuid}:ten\\: GiB\n")
    );
    assert_eq!(printed(&url, &["volume", "deactivate", "nfs1-10g"]).await, "");
    let owner = ["volume", "list", "-j", "--owner", COMPUTE];
    assert_eq!(printed(&url, &owner).await, "[]\n", "no user's");
    let shown = printed(&url, &["volume", "get", uuid, "-j"]).await;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["active"], &shown["size"]), (&json!(false), &json!(10240)));
    printed(&url, &["volume", "activate", uuid]).await;
    assert!(printed(&url, &["volume", "get", "nfs1-10g", "-H"]).await.contains("active"));
    assert!(printed(&url, &["volume", "list", "-s", "-size"]).await.starts_with("NAME"));

    // Refusals are one line and 1, wrong usage is 2.
    let named = [&add[..], &["--name", "nfs1-20g"]].concat();
    for (args, code, word) in [
        (&add[..], 1, "already exists"),
        (&named[..], 1, "20 GiB"),
        (&["volume", "get", "nfs9-10g"], 2, "no package has the name \"nfs9-10g\""),
        (&["volume", "list", "--owner", "nobody"], 2, "expected a uuid"),
        (&["volume", "add", "--size", "10"], 2, "--storage-instance-pkg"),
        (&["volume", "list", "-o", "nope"], 2, "no column"),
        (&["--url", "ftp://x", "volume", "list"], 2, "ftp://x"),
    ] {
        let done = run(&url, args).await;
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(word) && said.lines().count() == 1, "{args:?}: {said}");
    }
    let without_unit: Vec<&str> =
        add.iter().map(|it| if *it == "10G" { "10240" } else { it }).collect();
    assert_eq!(run(&url, &without_unit).await.status.code(), Some(2));
}
