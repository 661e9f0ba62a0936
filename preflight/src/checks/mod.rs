// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One module per side of the node. Each check returns findings and changes nothing.

mod data_centre; // NAPI, VMAPI, CNAPI, IMGAPI, PAPI

mod hub; // who answers on vminfod's port

mod certificate; // how migration-agent's certificate stands

mod agents; // the state files of our agents

mod services; // SMF

mod streams; // the helpers that run: sysevent, fswatcher

mod datasets; // zfs, zpool

mod zones; // zoneadm, the index, zones' files, kstats, sysinfo

mod programs; // what is installed, and how it is run

use std::time::Duration;

use serde_json::Value;

use crate::finding::Finding;
use crate::place::Place;
use programs::Programs;

/// Checks everything; waits for events as long as `watch`.
pub async fn all(place: &Place, watch: Duration) -> Vec<Finding> {
    let programs = Programs::of(place);
    let mut findings = programs::check(place);
    let zones = zones::check(place, &programs).await;
    findings.extend(zones.findings);
    findings.extend(datasets::check(&programs).await);
    findings.extend(services::check(&programs).await);
    let cn = zones.cn_uuid.as_deref();
    findings.extend(hub::check(place, cn).await);
    findings.push(agents::check(place, cn));
    findings.push(certificate::check(place).await);
    findings.extend(data_centre::check(place, cn).await);
    let (events, files) =
        tokio::join!(streams::events(&programs, watch), streams::files(place, &programs));
    findings.extend(events);
    findings.push(files);
    findings
}

/// Returns the platform's version: `Live Image` of the sysinfo file.
pub fn platform(place: &Place) -> String {
    let sysinfo = zones::sysinfo(place);
    let live = sysinfo.as_ref().and_then(|value| value.get("Live Image")).and_then(Value::as_str);
    live.unwrap_or("unknown").to_owned()
}
