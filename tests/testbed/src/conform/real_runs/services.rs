// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Our mock in the place of one service of a run, and when its answer is the recorded one.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use mocks::{cnapi, imgapi, napi, papi, vmapi};
use serde_json::{Value, json};

use super::shown::{self, Mock, Next};
use crate::conform::reply::Response;
use crate::conform::services::replay::{Memory, World};
use crate::conform::transcript::{Exchange, Group, UnknownStep};

/// What the VMAPI of the runs keeps, and the one of its own recording drops; none of our programs reads it.
const LATER: [&str; 9] = [
    "boot_timestamp",
    "exit_status",
    "exit_timestamp",
    "init_name",
    "internal_metadata_namespaces",
    "kernel_version",
    "package_name",
    "package_version",
    "pid",
];

/// One service of a run.
pub(super) struct Peer {
    mock: Mock,
    /// The nodes that CNAPI knows.
    nodes: Vec<String>,
}

impl World for Peer {
    const KIND: &'static str = "real-runs";

    async fn begin(group: &Group) -> anyhow::Result<Self> {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let at = group.world["at"].as_str().unwrap_or_default().parse::<jiff::Timestamp>()?;
        let at = at.as_millisecond();
        let mock = match group.mode.as_str() {
            "cnapi" => {
                let server = cnapi::Server::with_store(here, cnapi::Store::at(at)).await?;
                let next: Next = Arc::new(Mutex::new(Ok(json!({}))));
                let answers = Arc::clone(&next);
                server.store().set_hands(Arc::new(move |order| {
                    let answer = match order.verb.as_str() {
                        "load" => answers.lock().unwrap_or_else(PoisonError::into_inner).clone(),
                        _ => Ok(json!({})),
                    };
                    Box::pin(std::future::ready(answer))
                }));
                Mock::Cnapi(server, next)
            }
            "imgapi" => Mock::Imgapi(imgapi::Server::start(here).await?),
            "napi" => {
                let store = napi::Store::at(napi::Options::default(), at);
                Mock::Napi(napi::Server::with_store(here, store).await?)
            }
            "papi" => Mock::Papi(papi::Server::start(here).await?),
            "vmapi" => Mock::Vmapi(vmapi::Server::start(here).await?),
            other => anyhow::bail!("no service {other}"),
        };
        let nodes = shown::begin(&mock, group)?;
        Ok(Peer { mock, nodes })
    }

    fn addr(&self) -> SocketAddr {
        match &self.mock {
            Mock::Cnapi(server, _) => server.addr(),
            Mock::Imgapi(server) => server.addr(),
            Mock::Napi(server) => server.addr(),
            Mock::Papi(server) => server.addr(),
            Mock::Vmapi(server) => server.addr(),
        }
    }

    async fn change(&mut self, change: &Value, _: &Group) -> anyhow::Result<()> {
        Err(UnknownStep(change.clone()).into())
    }

    fn before(&mut self, one: &Exchange, memory: &Memory) {
        match &self.mock {
            Mock::Cnapi(server, next) => {
                shown::of_cnapi(server.store(), next, &self.nodes, one, memory);
            }
            Mock::Napi(server) => shown::of_napi(server.store(), one),
            Mock::Vmapi(server) => shown::of_vmapi(server.store(), one),
            Mock::Imgapi(_) | Mock::Papi(_) => {}
        }
    }

    fn compare(
        &mut self,
        one: &Exchange,
        got: Option<&Response>,
        memory: &mut Memory,
    ) -> Result<(), String> {
        let (asked, want) = (&one.request, &one.response);
        let is_creation = asked.method == "POST" && asked.path.ends_with("/vms");
        if want.status.is_none() && !is_creation {
            return Ok(()); // the creation before had ended the process, or somebody killed it
        }
        want.same_head(got, &[])?;
        let recorded = want.body.as_ref().filter(|body| !body.is_null() && !body.is_string());
        let (Some(got), Some(recorded)) = (got, recorded) else { return Ok(()) };
        if matches!(self.mock, Mock::Vmapi(_)) && want.status >= Some(500) {
            return Ok(()); // the storage's own words
        }
        let plain = |body: Value| match asked.path.as_str() {
            "/allocate" => chosen(body),
            _ if matches!(self.mock, Mock::Vmapi(_)) => without(body, |name| LATER.contains(&name)),
            _ if matches!(self.mock, Mock::Cnapi(..)) => without(body, is_counted),
            "/nics" => by_mac(body),
            _ => body,
        };
        let ours = got.json().unwrap_or_default();
        memory.value("body", "", &plain(recorded.clone()), &plain(ours))
    }
}

/// A placement without what is chosen at random: its steps, and what of a node is shown.
fn chosen(answer: Value) -> Value {
    let Some(server) = answer["server"].as_object() else { return answer };
    // A node that only lists show has told nothing of its disks.
    let mut fields: Vec<&String> = server.keys().filter(|it| !it.starts_with("disk_")).collect();
    fields.sort();
    let steps = answer["steps"].as_array().into_iter().flatten().map(|step| &step["step"]);
    json!({ "server": fields, "steps": steps.collect::<Vec<_>>() })
}

/// What CNAPI counts from what the node told a while before, and from the VMs that VMAPI has: none of it is in a run.
fn is_counted(name: &str) -> bool {
    name.starts_with("unreserved_")
        || ["memory_provisionable_bytes", "overprovision_ratios"].contains(&name)
}

/// The NICs of a list, which were made within a moment here.
fn by_mac(mut nics: Value) -> Value {
    let mac = |nic: &Value| nic["mac"].as_str().unwrap_or_default().to_owned();
    nics.as_array_mut().into_iter().for_each(|nics| nics.sort_by_key(mac));
    nics
}

/// A record, or each of a list, without some of its fields.
fn without(mut body: Value, is_out: fn(&str) -> bool) -> Value {
    match &mut body {
        Value::Object(record) => record.retain(|name, _| !is_out(name)),
        Value::Array(all) => all.iter_mut().for_each(|it| *it = without(it.take(), is_out)),
        _ => {}
    }
    body
}
