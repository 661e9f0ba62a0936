// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! zoneadm, the index, zones' files, kstats, sysinfo.

use std::collections::BTreeSet;
use std::path::Path;

use daemon::command::Program;
use daemon::text::counted;
use serde_json::Value;
use vm_model::parse::{kstat, sysinfo as sysinfo_file, zone_index, zone_xml, zoneadm};

use super::finding::Finding;
use super::programs::Programs;
use crate::place::Place;

/// Files of a zone that hold JSON objects.
const CONFIG: [&str; 3] = ["metadata.json", "routes.json", "tags.json"];

/// What the zones' side found.
pub(super) struct Zones {
    pub(super) findings: Vec<Finding>,
    /// The uuid of the node.
    pub(super) cn_uuid: Option<String>,
}

pub(super) async fn check(place: &Place, programs: &Programs) -> Zones {
    let mut findings = Vec::new();
    let index = std::fs::read(place.file("/etc/zones/index")).unwrap_or_default();
    let listed = match programs.printed(Program::Zoneadm, &["list", "-p", "-c"]).await {
        Ok(listed) => {
            findings.extend([rows_of(&listed), agreement(&listed, &index)]);
            listed
        }
        Err(why) => {
            findings.push(Finding::fails("B2", why));
            Vec::new()
        }
    };
    let rows = zoneadm::parse(&listed);
    findings.push(configurations(place, &index));
    findings.push(config_files(place, &rows));
    findings.push(kstats(programs, &rows).await);
    findings.push(vmadm(programs, &rows).await);
    let sysinfo = sysinfo(place);
    findings.push(fields_of(sysinfo.as_ref()));
    let cn_uuid = sysinfo.and_then(|value| Some(value.get("UUID")?.as_str()?.to_owned()));
    Zones { findings, cn_uuid }
}

/// Every line is a row with the columns that are read.
fn rows_of(listed: &[u8]) -> Finding {
    let mut against = Vec::new();
    // The error has the end of the listing in it.
    if zoneadm::check_whole(listed).is_err() {
        against.push("the listing is not whole".to_owned());
    }
    let lines = listed.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
    let readable = zoneadm::names(listed).len();
    if readable < lines {
        against.push(format!("{} of {lines} rows cannot be read", lines - readable));
    }
    let text = String::from_utf8_lossy(listed);
    if !text.lines().any(|line| line.split(':').nth(1) == Some("global")) {
        against.push("there is no row of the global zone".to_owned());
    }
    Finding::unless("B2", &against, format!("{lines} rows"))
}

/// The listing and the index name the same zones.
fn agreement(listed: &[u8], index: &[u8]) -> Finding {
    if index.is_empty() {
        return Finding::unknown("B3", "there is no index");
    }
    let listed = zoneadm::names(listed);
    let indexed: BTreeSet<&str> = zone_index::lines(index).map(|line| line.name).collect();
    let missing = indexed.iter().filter(|name| !listed.contains(**name)).count();
    let strange =
        listed.iter().filter(|name| *name != "global" && !indexed.contains(name.as_str())).count();
    let mut against = Vec::new();
    if missing > 0 {
        against.push(format!("{missing} zones of the index are not listed"));
    }
    if strange > 0 {
        against.push(format!("{strange} listed zones are not in the index"));
    }
    Finding::unless("B3", &against, format!("{} zones in both", indexed.len()))
}

/// Each zone of the index has a configuration that is understood.
fn configurations(place: &Place, index: &[u8]) -> Finding {
    let (mut read, mut bad) = (0, 0);
    for line in zone_index::lines(index) {
        let path = place.file(&format!("/etc/zones/{}.xml", line.name));
        match std::fs::read(path).ok().map(|bytes| zone_xml::parse(&bytes).is_ok()) {
            Some(true) => read += 1,
            _ => bad += 1,
        }
    }
    let against = match bad {
        0 => vec![],
        bad => vec![format!("{bad} of {} configurations cannot be read", read + bad)],
    };
    Finding::unless("B4", &against, format!("{read} configurations"))
}

/// The files of a zone's config folder are JSON objects.
fn config_files(place: &Place, rows: &[zoneadm::ZoneRow]) -> Finding {
    let (mut read, mut bad) = (0, 0);
    for row in rows {
        for name in CONFIG {
            let path = Path::new(&*row.zonepath).join("config").join(name);
            let Ok(bytes) = std::fs::read(place.file(&path.to_string_lossy())) else { continue };
            match serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes) {
                Ok(_) => read += 1,
                Err(_) => bad += 1,
            }
        }
    }
    let against = match bad {
        0 => vec![],
        bad => vec![format!("{bad} of {} files are no JSON objects", read + bad)],
    };
    Finding::unless("B5", &against, format!("{read} files"))
}

/// The kstats of the zones that run.
async fn kstats(programs: &Programs, rows: &[zoneadm::ZoneRow]) -> Finding {
    let printed = match programs.printed(Program::Kstat, &[]).await {
        Ok(printed) => printed,
        Err(why) => return Finding::fails("B6", why),
    };
    let kstats = match kstat::parse(&printed) {
        Ok(kstats) => kstats,
        Err(_) => return Finding::fails("B6", "it is not understood"),
    };
    let running = rows.iter().filter(|row| row.zone_state == "running");
    let without = running.clone().filter(|row| kstat::of(&kstats, row).is_none()).count();
    let against = match without {
        0 => vec![],
        without => vec![format!("{without} zones that run have none")],
    };
    Finding::unless("B6", &against, format!("{} zones", running.count()))
}

/// vmadm lists the VMs that zoneadm lists.
async fn vmadm(programs: &Programs, rows: &[zoneadm::ZoneRow]) -> Finding {
    let args = ["list", "-H", "-o", "uuid"];
    let printed = match programs.printed(Program::Vmadm, &args).await {
        Ok(printed) => printed,
        Err(why) => return Finding::unknown("B7", why),
    };
    let text = String::from_utf8_lossy(&printed).into_owned();
    let listed: BTreeSet<&str> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let zones: BTreeSet<&str> = rows.iter().map(|row| &*row.uuid).collect();
    let differ = listed.symmetric_difference(&zones).count();
    let against = match differ {
        0 => vec![],
        differ => vec![format!("vmadm and zoneadm differ in {}", counted(differ, "VM", "VMs"))],
    };
    Finding::unless("B7", &against, counted(listed.len(), "VM", "VMs"))
}

/// Returns the sysinfo file.
pub(super) fn sysinfo(place: &Place) -> Option<Value> {
    let bytes = std::fs::read(place.file("/tmp/.sysinfo.json")).ok()?;
    sysinfo_file::parse(&bytes).ok().map(|sysinfo| sysinfo.value().clone())
}

/// The fields of sysinfo that are read.
fn fields_of(sysinfo: Option<&Value>) -> Finding {
    let Some(sysinfo) = sysinfo else {
        return Finding::fails("B8", "the file cannot be read");
    };
    let is_text = |key: &str| sysinfo.get(key).is_some_and(Value::is_string);
    let texts = ["UUID", "Hostname", "Live Image", "Zpool", "Datacenter Name"];
    let mut against: Vec<String> =
        texts.iter().filter(|key| !is_text(key)).map(|key| format!("no text {key}")).collect();
    let cards = sysinfo.get("Network Interfaces").and_then(Value::as_object);
    let macs =
        cards.into_iter().flatten().filter(|(_, card)| card.get("MAC Address").is_some()).count();
    if macs == 0 {
        against.push("no MAC Address in Network Interfaces".to_owned());
    }
    Finding::unless("B8", &against, format!("{macs} network interfaces"))
}
