// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Agents and services that get no file descriptor: each keeps on, says what failed, and recovers.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use sdc_clients::Http;
use sdc_clients::http::Call;
use testbed::lab::asking::OWN_AGENT;
use testbed::moving::subject::VM;
use tokio::time::timeout;

use super::super::common::centre::Centre;
use super::super::common::until;

/// The programs, and where each prints its status.
fn programs(centre: &Centre) -> [(&'static str, String); 5] {
    let lab = &centre.lab;
    [
        ("net-agent", lab.agent_url()),
        ("vm-agent", lab.vm_agent_url()),
        ("migration-agent", lab.migration_agent_status_url()),
        ("migration-service", lab.migrations_status_url()),
        ("volapi", lab.volapi_status_url()),
    ]
}

async fn answers(url: &str) -> bool {
    let http = Http::new(url, OWN_AGENT).unwrap().without_retries();
    let asked = http.execute(Call::get(&["status"]));
    // Who is not taken in waits.
    timeout(Duration::from_secs(1), asked).await.is_ok_and(|answer| answer.is_ok())
}

fn log(centre: &Centre, name: &str) -> String {
    let file: PathBuf = centre.lab.dir().join(format!("cn/{name}.log"));
    std::fs::read_to_string(file).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // F24
async fn agents_and_services_without_file_descriptors_say_so_and_go_on_when_they_have_some() {
    let centre = Centre::start().await;
    let all = programs(&centre);
    let mut kept = Vec::new();
    for (name, _) in &all {
        let number = centre.lab.pid(name).unwrap();
        let pid = Pid::from_raw(number as i32);
        // A hard limit that was made lower could not be raised again.
        let none = Rlimit { current: Some(8), maximum: getrlimit(Resource::Nofile).maximum };
        let before = prlimit(pid, Resource::Nofile, none);
        kept.push((number, before.unwrap()));
    }
    for (name, url) in &all {
        until(name, async || {
            !answers(url).await && log(&centre, name).contains("Too many open files")
        })
        .await;
    }
    for ((name, _), (number, before)) in all.iter().zip(&kept) {
        assert_eq!(centre.lab.pid(name), Some(*number), "{name} runs");
        prlimit(Pid::from_raw(*number as i32), Resource::Nofile, *before).unwrap();
    }
    for (name, url) in &all {
        until(name, async || answers(url).await).await;
    }
    // Each does its work.
    centre.good("sdc-voladm list-volume-zones").await;
    centre.good(&format!("sdc-migrate begin -y {VM} && sdc-migrate abort -y {VM}")).await;
    centre.good(&format!("vmadm update {VM} alias=after")).await;
    until("VMAPI has it", async || {
        centre.lab.vmapi.store().get(VM).is_some_and(|vm| vm["alias"] == "after")
    })
    .await;
    centre.stop().await;
}
