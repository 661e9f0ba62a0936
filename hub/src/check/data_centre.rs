// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! NAPI, VMAPI, CNAPI, IMGAPI, PAPI: answers to harmless GETs.

use daemon::text::counted;
use sdc_clients::http::{Call, Http, Reply, user_agent};
use serde_json::{Map, Value};

use super::finding::Finding;
use crate::place::{Place, Service};

/// How far the clocks of a node and a service may be apart, in seconds.
const CLOCKS: i64 = 300;

pub(super) async fn check(place: &Place, cn: Option<&str>) -> Vec<Finding> {
    let of = |service: Service| client(place, service);
    vec![
        nics(of(Service::Napi), cn).await,
        filter(of(Service::Napi), cn).await,
        vms(of(Service::Vmapi), cn).await,
        clock(of(Service::Vmapi)).await,
        server(of(Service::Cnapi), cn).await,
        list("B23", of(Service::Imgapi), "images", &["uuid", "state", "files"]).await,
        list("B24", of(Service::Papi), "packages", &["uuid", "name", "active"]).await,
    ]
}

pub(super) fn client(place: &Place, service: Service) -> Option<Http> {
    let agent = user_agent("hub", env!("CARGO_PKG_VERSION"), None);
    Some(Http::new(place.service(service)?, &agent).ok()?.without_retries())
}

/// Returns the answer, or a finding: no address is configured, or what is wrong with the answer.
async fn ask(belief: &'static str, http: Option<Http>, call: Call) -> Result<Reply, Finding> {
    let Some(http) = http else {
        return Err(Finding::unknown(belief, "no configuration names the service"));
    };
    http.execute(call).await.map_err(|error| match error.status() {
        Some(status) => Finding::fails(belief, format!("the answer is {status}")),
        None => Finding::unknown(belief, "the service does not answer"),
    })
}

fn rows(belief: &'static str, reply: &Reply) -> Result<Vec<Map<String, Value>>, Finding> {
    reply
        .json("an array of objects")
        .map_err(|_| Finding::fails(belief, "the answer is no array of objects"))
}

/// Counts the rows that lack one of the fields.
fn lacking(rows: &[Map<String, Value>], fields: &[&str]) -> Vec<String> {
    let lacks = |field: &&str| rows.iter().any(|row| !row.contains_key(*field));
    fields
        .iter()
        .filter(|field| lacks(field))
        .map(|field| format!("a row has no {field}"))
        .collect()
}

async fn list(belief: &'static str, http: Option<Http>, path: &str, fields: &[&str]) -> Finding {
    let read = async {
        let reply = ask(belief, http, Call::get(&[path]).query("limit", 5)).await?;
        let rows = rows(belief, &reply)?;
        Ok(Finding::unless(belief, &lacking(&rows, fields), format!("{} rows", rows.len())))
    };
    read.await.unwrap_or_else(|finding| finding)
}

async fn nics(http: Option<Http>, cn: Option<&str>) -> Finding {
    const FIELDS: [&str; 4] = ["mac", "belongs_to_uuid", "belongs_to_type", "owner_uuid"];
    let read = async {
        let call = Call::get(&["nics"]).query("belongs_to_uuid", cn.unwrap_or_default());
        let reply = ask("B18", http.clone(), call.query("limit", 5)).await?;
        let rows = rows("B18", &reply)?;
        let mut against = lacking(&rows, &FIELDS);
        let mac = rows.first().and_then(|row| row.get("mac")).and_then(Value::as_str);
        if let Some(mac) = mac {
            let bare = mac.replace(':', "");
            let one = ask("B18", http, Call::get(&["nics", &bare])).await?;
            if one.etag().is_none() {
                against.push("a NIC has no etag".to_owned());
            }
        }
        Ok(Finding::unless(
            "B18",
            &against,
            format!("{} of this node", counted(rows.len(), "NIC", "NICs")),
        ))
    };
    read.await.unwrap_or_else(|finding| finding)
}

/// The filter that RFD 58 relies on, or what stands in for it.
async fn filter(http: Option<Http>, cn: Option<&str>) -> Finding {
    let read = async {
        let call = Call::get(&["nics"]).query("cn_uuid", cn.unwrap_or_default()).query("limit", 20);
        let reply = ask("B19", http, call).await?;
        let rows = rows("B19", &reply)?;
        let foreign =
            rows.iter().filter(|row| row.get("cn_uuid").and_then(Value::as_str) != cn).count();
        let against = match foreign {
            0 => vec![],
            foreign => vec![format!("{foreign} of {} NICs are not this node's", rows.len())],
        };
        Ok(Finding::unless("B19", &against, counted(rows.len(), "NIC", "NICs")))
    };
    read.await.unwrap_or_else(|finding| finding)
}

async fn vms(http: Option<Http>, cn: Option<&str>) -> Finding {
    const FIELDS: [&str; 4] = ["uuid", "owner_uuid", "state", "server_uuid"];
    let read = async {
        let call = Call::get(&["vms"])
            .query("server_uuid", cn.unwrap_or_default())
            .query("state", "active");
        let reply = ask("B20", http, call.query("limit", 20)).await?;
        let rows = rows("B20", &reply)?;
        let mut against = lacking(&rows, &FIELDS);
        let foreign =
            rows.iter().filter(|row| row.get("server_uuid").and_then(Value::as_str) != cn).count();
        if foreign > 0 {
            against.push(format!("{foreign} of {} VMs are not this node's", rows.len()));
        }
        if reply.text("x-joyent-resource-count").is_none() {
            against.push("no header counts the VMs".to_owned());
        }
        Ok(Finding::unless("B20", &against, counted(rows.len(), "VM", "VMs")))
    };
    read.await.unwrap_or_else(|finding| finding)
}

async fn clock(http: Option<Http>) -> Finding {
    let read = async {
        let reply = ask("B21", http, Call::get(&["ping"])).await?;
        let Some(date) = reply.date() else {
            return Ok(Finding::unknown("B21", "the answer has no date"));
        };
        let apart = (daemon::wall::now().as_second() - date.as_second()).abs();
        let against = match apart {
            0..=CLOCKS => vec![],
            apart => vec![format!("the clocks are {apart} s apart")],
        };
        Ok(Finding::unless("B21", &against, format!("{apart} s apart")))
    };
    read.await.unwrap_or_else(|finding| finding)
}

async fn server(http: Option<Http>, cn: Option<&str>) -> Finding {
    let read = async {
        let reply = ask("B22", http, Call::get(&["servers", cn.unwrap_or_default()])).await?;
        let Ok(server) = reply.object() else {
            return Ok(Finding::fails("B22", "the answer is no object"));
        };
        let mut against = Vec::new();
        if server.get("status").and_then(Value::as_str) != Some("running") {
            against.push("its status is not running".to_owned());
        }
        let sysinfo = server.get("sysinfo").and_then(Value::as_object);
        if sysinfo.and_then(|sysinfo| sysinfo.get("UUID")).and_then(Value::as_str) != cn {
            against.push("its sysinfo is of another node".to_owned());
        }
        Ok(Finding::unless("B22", &against, "known and running"))
    };
    read.await.unwrap_or_else(|finding| finding)
}
