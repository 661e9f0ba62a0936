// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Who answers on vminfod's port, and on its socket.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use sdc_clients::http::{Call, Http, user_agent};
use serde_json::{Map, Value};

use super::finding::Finding;
use crate::place::Place;

/// Fields of vminfod's status that deployed programs read.
const STATUS: [&str; 6] = ["pid", "state", "status", "uptime", "numVms", "eventsListeners"];

pub(super) async fn check(place: &Place, cn: Option<&str>) -> Vec<Finding> {
    let mut findings = vec![answer(place, cn).await];
    if let Some(socket) = &place.socket {
        findings.push(private(socket));
    }
    findings
}

async fn answer(place: &Place, cn: Option<&str>) -> Finding {
    let agent = user_agent("hub", env!("CARGO_PKG_VERSION"), None);
    let Ok(http) = Http::new(&place.hub, &agent) else {
        return Finding::fails("B16", "the address is none");
    };
    let http = http.without_retries();
    let status = match http.execute(Call::get(&["status"])).await {
        Ok(reply) => reply.object(),
        Err(error) if error.status().is_some() => {
            return Finding::fails("B16", "it answers /status with an error");
        }
        Err(_) => return Finding::unknown("B16", "nothing answers: the hub does not run"),
    };
    let Ok(status) = status else { return Finding::fails("B16", "its status is no object") };
    let mut against: Vec<String> = STATUS
        .iter()
        .filter(|key| !status.contains_key(**key))
        .map(|key| format!("its status has no {key}"))
        .collect();
    let pid = status.get("pid").and_then(Value::as_u64);
    if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
        against.push("no process has the pid of its status".to_owned());
    }
    // A program that took the port knows no sysinfo of this node.
    match http.execute(Call::get(&["sysinfo"])).await.and_then(|reply| reply.object()) {
        Ok(answer) if uuid(&answer) != cn => {
            against.push("it serves the sysinfo of another node".to_owned());
        }
        Ok(_) => {}
        Err(_) => {
            return Finding::unless(
                "B16",
                &against,
                "this node runs another vminfod: it serves no sysinfo",
            );
        }
    }
    Finding::unless("B16", &against, "ours")
}

fn uuid(answer: &Map<String, Value>) -> Option<&str> {
    answer.get("sysinfo")?.get("UUID")?.as_str()
}

/// The socket is root's, and no other user may open it.
fn private(socket: &Path) -> Finding {
    let Ok(meta) = std::fs::symlink_metadata(socket) else {
        return Finding::unknown("B17", "there is no socket: the hub does not run");
    };
    let mut against = Vec::new();
    if !meta.file_type().is_socket() {
        against.push("it is no socket".to_owned());
    }
    if meta.uid() != 0 {
        against.push("it is not root's".to_owned());
    }
    let others = match socket.parent().map(std::fs::metadata) {
        Some(Ok(dir)) => dir.mode() & meta.mode() & 0o022,
        _ => meta.mode() & 0o022,
    };
    if others != 0 {
        against.push("others may write to it".to_owned());
    }
    Finding::unless("B17", &against, "root's alone")
}
