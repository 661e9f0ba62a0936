// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The whole chain with real processes: vminfod, the vm-agent that tells VMAPI, VMAPI and net-agent. What one of them
//! gets wrong, or what answers in its place, deletes no NIC.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use sdc_clients::http::{Call, Http};
use sdc_clients::vminfod::VmFields as _;
use serde_json::{Value, json};
use testbed::lab::asking::{OWN_AGENT, until};
use testbed::process::Child;

use super::common::{LATE, Lab, program};

/// What zoneadm prints on a node without zones.
const ONLY_GLOBAL: &str = "0:global:running:/::liveimg:shared:0";

/// Replaces the node's zoneadm by one that prints only `global`, or puts it back.
fn blind(world: &Lab, blind: bool) {
    let zoneadm = world.node().tool("zoneadm");
    let kept = zoneadm.with_extension("kept");
    if blind {
        std::fs::rename(&zoneadm, &kept).unwrap();
        std::fs::write(&zoneadm, format!("#!/bin/sh\necho '{ONLY_GLOBAL}'\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&zoneadm, mode).unwrap();
    } else {
        std::fs::rename(&kept, &zoneadm).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")] // F67, F68
async fn a_node_that_suddenly_has_no_zones_loses_no_nic() {
    let mut world = Lab::compared().await;
    let before = world.nics().await.unwrap().len();
    // The boot environment is wrong: zoneadm prints only `global`, and the index agrees.
    world.end("vminfod", true).await.unwrap();
    blind(&world, true);
    let index = world.node().path("/etc/zones/index");
    let zones = std::fs::read_to_string(&index).unwrap();
    std::fs::write(&index, "global:installed:/\n").unwrap();
    // So does the folder: with the XMLs there the VMs would be named, and nothing would be gone.
    let (folder, aside) = (world.node().path("/etc/zones"), world.dir().join("aside"));
    std::fs::create_dir(&aside).unwrap();
    let move_xmls = |from: &Path, to: &Path| {
        for file in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_some_and(|kind| kind == "xml") {
                std::fs::rename(&file, to.join(file.file_name().unwrap())).unwrap();
            }
        }
    };
    move_xmls(&folder, &aside);
    world.start_vminfod().await.unwrap();
    assert!(world.hub().unwrap().vms(true).await.unwrap().vms.is_empty());
    // vm-agent does not believe it; VMAPI does, for each VM that somebody asks it about.
    let vmapi = Http::new(&world.vmapi.url(), OWN_AGENT).unwrap();
    for vm in world.vmapi.store().all() {
        let asked = Call::get(&["vms", vm["uuid"].as_str().unwrap()]).query("sync", "true");
        vmapi.execute(asked).await.unwrap();
    }
    assert!(world.vmapi.store().all().iter().all(|vm| vm["state"] == "destroyed"));
    let words = world.vmapi.requests().iter().filter(|seen| seen.method == "PUT").count();
    assert_eq!(words, 0, "vm-agent told VMAPI something");
    world.rounds().await;
    assert_eq!(world.nic_deletes(), 0);
    // The agent starts again too, and lists.
    for crash in [true, false] {
        world.end("net-agent", crash).await.unwrap();
        world.start_agent().await.unwrap();
        until("the brake is on", LATE, || async {
            Ok(world.agent_status().await["brake"].is_string())
        })
        .await
        .unwrap();
        world.rounds().await;
    }
    assert_eq!((world.nic_deletes(), world.nics().await.unwrap().len()), (0, before));
    // The right one is back.
    world.end("vminfod", true).await.unwrap();
    blind(&world, false);
    move_xmls(&aside, &folder);
    std::fs::write(&index, zones).unwrap();
    world.start_vminfod().await.unwrap();
    let alive = || world.vmapi.store().all().iter().all(|vm| vm["state"] != "destroyed");
    until("vm-agent has told VMAPI", LATE, || async { Ok(alive()) }).await.unwrap();
    until("the brake is off", LATE, || async { Ok(world.agent_status().await["brake"].is_null()) })
        .await
        .unwrap();
    assert_eq!((world.nic_deletes(), world.nics().await.unwrap().len()), (0, before));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")] // F67
async fn a_zoneadm_that_prints_only_global_loses_no_nic() {
    let mut world = Lab::compared().await;
    let before = world.nics().await.unwrap().len();
    world.end("vminfod", true).await.unwrap();
    blind(&world, true);
    // The index names zones that zoneadm does not: vminfod does not say that nothing is here.
    let started = tokio::time::timeout(Duration::from_secs(10), world.start_vminfod()).await;
    if matches!(started, Ok(Ok(()))) {
        let view = world.hub().unwrap().vms(true).await;
        assert!(view.is_err() || !view.unwrap().incomplete.is_nothing());
    }
    world.end("net-agent", true).await.unwrap();
    world.start_agent().await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), world.rounds()).await.ok();
    assert_eq!((world.nic_deletes(), world.nics().await.unwrap().len()), (0, before));
    world.stop().await;
}

/// Something between the agent and vminfod, which answers for single VMs while it is `wrong`.
#[derive(Clone)]
struct Proxy {
    to: String,
    wrong: Arc<AtomicBool>,
    asked: Arc<AtomicBool>,
}

async fn forward(State(proxy): State<Proxy>, request: Request) -> Response {
    let path = request.uri().path_and_query().unwrap().to_string();
    if path.starts_with("/vms/") && proxy.wrong.load(Ordering::SeqCst) {
        proxy.asked.store(true, Ordering::SeqCst);
        return (StatusCode::NOT_FOUND, "<html><h1>404 Not Found</h1></html>").into_response();
    }
    let answer = reqwest::get(format!("{}{path}", proxy.to)).await.unwrap();
    let (status, headers) = (answer.status(), answer.headers().clone());
    let mut response = Body::from_stream(answer.bytes_stream()).into_response();
    *response.status_mut() = status;
    for name in ["vminfod-incomplete", "vminfod-sync"] {
        if let Some(value) = headers.get(name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

#[tokio::test(flavor = "multi_thread")] // F69
async fn a_proxys_404_is_no_absence() {
    let mut world = Lab::compared().await;
    world.end("net-agent", false).await.unwrap();
    let wrong = Arc::new(AtomicBool::new(true));
    let proxy = Proxy { to: world.vminfod_url(), wrong: Arc::clone(&wrong), asked: Arc::default() };
    let asked = Arc::clone(&proxy.asked);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = axum::Router::new().fallback(forward).with_state(proxy);
    let serving = tokio::spawn(async move { axum::serve(listener, serving).await });
    let file = world.node().dir().join("net-agent.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    config["vminfod"] = json!({"url": url, "trust_tcp": true});
    let file = world.dir().join("proxied.json");
    std::fs::write(&file, config.to_string()).unwrap();
    let args = ["@net-agent", "serve", "--config", file.to_str().unwrap()].map(str::to_owned);
    let mut agent = Child::spawn("net-agent", &program(), &args).unwrap();
    let mut lines = agent.take_lines();
    tokio::spawn(async move { while lines.recv().await.is_some() {} });
    until("the agent follows vminfod", LATE, || async {
        let http = Http::new(&world.agent_url(), OWN_AGENT).unwrap();
        let page = http.execute(Call::get(&["status"])).await;
        Ok(page.is_ok_and(|page| page.object().is_ok_and(|page| page["resyncs"] != 0)))
    })
    .await
    .unwrap();
    let vm = world
        .hub()
        .unwrap()
        .vms(true)
        .await
        .unwrap()
        .vms
        .into_iter()
        .find(|vm| vm.state() == Some("running") && !vm.is_hidden() && !vm.macs().is_empty());
    let uuid = vm.unwrap()["uuid"].as_str().unwrap().to_owned();
    world.verbs().delete_raw(&uuid).await.unwrap();
    until("the page was shown", LATE, || async { Ok(asked.load(Ordering::SeqCst)) }).await.unwrap();
    world.rounds().await;
    assert_eq!(world.nic_deletes(), 0, "{}", world.agent_status().await);
    wrong.store(false, Ordering::SeqCst);
    until("vminfod's own 404 counts", LATE, || async { Ok(world.nic_deletes() > 0) })
        .await
        .unwrap();
    drop(agent);
    serving.abort();
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")] // F138
async fn whoever_takes_the_port_while_the_hub_is_down_is_not_believed() {
    let mut world = Lab::compared().await;
    let address = world.vminfod_url().trim_start_matches("http://").to_owned();
    let (cn, epoch) = (world.node().cn_uuid().to_owned(), "0123456789abcdef");
    world.end("vminfod", true).await.unwrap();
    // An empty node, in our own vminfod's words, to whoever asks for whatever.
    let asked = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&asked);
    let impostor = axum::Router::new().fallback(move |request: Request| {
        seen.store(true, Ordering::SeqCst);
        let (path, sync) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
        let body = match path.as_str() {
            "/sysinfo" => json!({"sysinfo": {"UUID": cn}, "age_ms": 1}).to_string(),
            "/vms" => "[]".to_owned(),
            "/events" => format!(
                "{{\"type\":\"ready\",\"date\":\"2026-01-01T00:00:00.000Z\",\"epoch\":\"{epoch}\",\"seq\":0,\"vms\":\"[]\"}}\n"
            ),
            _ => format!("VM Not Found: {}", path.trim_start_matches("/vms/")),
        };
        async move { ([("vminfod-sync", sync.replace("sync=", ""))], body).into_response() }
    });
    rig::port::refuses(address.parse().unwrap()).await.unwrap();
    let listener = tokio::net::TcpListener::bind(&address).await.unwrap();
    let serving = tokio::spawn(async move { axum::serve(listener, impostor).await });
    until("the agent waits for vminfod", LATE, || async {
        let waits = world.agent_status().await["waiting_for"].to_string();
        Ok(waits.contains("waiting for vminfod") && waits.contains("refused"))
    })
    .await
    .unwrap();
    assert_eq!(world.nic_deletes(), 0, "{}", world.agent_status().await);
    let records = world.vmapi.store().all();
    assert!(
        records.iter().all(|vm| vm["state"] != "destroyed"),
        "VMAPI was told that a VM is gone"
    );
    assert!(!asked.load(Ordering::SeqCst), "an agent asked the port");
    serving.abort();
    world.start_vminfod().await.unwrap();
    world.stop().await;
}
