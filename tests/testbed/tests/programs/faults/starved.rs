// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Agents and services that get no file descriptor, or whose files cannot be read: each keeps on, says what failed, and
//! recovers.

use std::path::{Path, PathBuf};
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // F25
async fn programs_whose_files_answer_eio_say_so_and_go_on() {
    let mut centre = Centre::start().await;
    // Their first writes are over.
    for (name, url) in programs(&centre) {
        until(name, async || answers(&url).await).await;
    }
    let cn = centre.lab.dir().join("cn");
    let eio = |file: &Path| {
        let kept = file.with_extension("kept");
        std::fs::rename(file, &kept).unwrap();
        // Its beginning cannot be read: EIO.
        std::os::unix::fs::symlink("/proc/self/mem", file).unwrap();
        kept
    };
    // Read while it runs.
    let authority = centre.lab.authority_file();
    let kept = eio(&authority);
    until("migration-service", async || log(&centre, "migration-service").contains("(os error 5)"))
        .await;
    std::fs::rename(kept, authority).unwrap();
    centre.good(&format!("sdc-migrate begin -y {VM} && sdc-migrate abort -y {VM}")).await;
    // Read at a start. (migration-agent does not begin without what it kept: SMF starts it again.)
    for name in ["net-agent", "vm-agent"] {
        centre.lab.end(name, false).await.unwrap();
        let memory = cn.join(name).join("memory.json");
        eio(&memory);
        match name {
            "net-agent" => centre.lab.start_agent().await.unwrap(),
            _ => centre.lab.start_vm_agent().await.unwrap(),
        }
        until(name, async || log(&centre, name).contains("(os error 5)")).await;
        until(name, async || std::fs::symlink_metadata(&memory).is_ok_and(|it| it.is_file())).await;
    }
    for (name, url) in programs(&centre) {
        until(name, async || answers(&url).await).await;
    }
    centre.stop().await;
}
