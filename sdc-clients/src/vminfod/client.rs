// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The routes of vminfod other than its stream.

use std::time::Duration;

use ::http::StatusCode;
use serde_json::Value;

use super::left::Left;
use super::types::VmObject;
use super::view::{Incomplete, SYNCED, View};
use crate::error::Error;
use crate::http::{Call, Http, Reply};
use crate::uuids::uuid_value;

/// A synchronous read awaits the node's own commands.
const SYNC_TIMEOUT: Duration = Duration::from_secs(150);
/// A node with many VMs has long lists.
const LIST_CAP: usize = 256 << 20;

/// The values of `sync`.
const TRUE: &str = "true";
const ZONES: &str = "zones";

/// A client of vminfod. Requests are sent once: the service is on this node.
#[derive(Debug, Clone)]
pub struct Vminfod {
    http: Http,
}

impl Vminfod {
    /// A client of the vminfod at `base_url`. `user_agent` is the caller's name, as `my-agent/1.0`:
    /// vminfod's status lists its listeners by it.
    pub fn new(base_url: &str, user_agent: &str) -> Result<Vminfod, Error> {
        Ok(Vminfod::with_http(Http::new(base_url, user_agent)?.without_retries()))
    }

    /// A client that speaks through `http`, with its user agent and its retries.
    pub fn with_http(http: Http) -> Vminfod {
        Vminfod { http }
    }

    /// Whether the service is up.
    pub async fn ping(&self) -> Result<(), Error> {
        let reply = self.http.execute(Call::get(&["ping"])).await?;
        match reply.object()?.get("ping") {
            Some(Value::String(pong)) if pong == "pong" => Ok(()),
            _ => Err(reply.unexpected("pong")),
        }
    }

    /// The service about itself.
    pub async fn status(&self) -> Result<Value, Error> {
        Ok(Value::Object(self.http.execute(Call::get(&["status"])).await?.object()?))
    }

    /// The service about itself, with every zone that it cannot read.
    pub async fn full_status(&self) -> Result<Value, Error> {
        let call = Call::get(&["status"]).query("full", TRUE);
        Ok(Value::Object(self.http.execute(call).await?.object()?))
    }

    /// Every VM of the node, hidden ones included; with `sync`, as a load
    /// begun after this request finds them.
    pub async fn vms(&self, sync: bool) -> Result<View, Error> {
        self.view(synced(Call::get(&["vms"]), sync), sync.then_some(TRUE)).await
    }

    /// Every VM of the node; what zoneadm, the zone index and the zones' configurations say, such as
    /// which VMs exist and their NICs, as it is after this request. It does not wait for ZFS.
    pub async fn zones(&self) -> Result<View, Error> {
        let call = Call::get(&["vms"]).query("sync", ZONES).timeout(SYNC_TIMEOUT);
        self.view(call, Some(ZONES)).await
    }

    async fn view(&self, call: Call, sync: Option<&str>) -> Result<View, Error> {
        let reply = proved(self.http.execute(call.body_cap(LIST_CAP)).await?, sync)?;
        let incomplete = Incomplete::of(reply.headers());
        Ok(View { vms: reply.json("an array of VMs")?, incomplete })
    }

    /// One VM by zone name or uuid; with `sync`, as a load begun after this request finds it. "Not found"
    /// is what vminfod says itself: the 404 of anything in between is an error of another class, and with
    /// `sync` the service has proved that it reads the node when asked.
    pub async fn vm(&self, name: &str, sync: bool) -> Result<VmObject, Error> {
        let name = uuid_value(name);
        let answer = self.http.execute(synced(Call::get(&["vms", &name]), sync)).await;
        match answer {
            Err(err) if err.is_not_found_resource() && err.message() != not_found(&name) => {
                let (method, path, text) = (err.method(), err.path(), err.message().as_bytes());
                let status = Some(StatusCode::NOT_FOUND);
                Err(Error::protocol(method, path, status, "vminfod's own 404", text))
            }
            Err(err) if sync && err.is_not_found_resource() => {
                self.zones().await?;
                Err(err)
            }
            answer => proved(answer?, sync.then_some(TRUE))?.object(),
        }
    }

    /// What is left on the node of a VM that [`Vminfod::vm`] does not find: asked before it is told that the VM is gone.
    pub async fn left(&self, vm: &str) -> Result<Left, Error> {
        let vm = uuid_value(vm);
        let reply = match self.http.execute(Call::get(&["why", &vm])).await {
            Err(err) if err.is_not_found_resource() && err.message() == not_found(&vm) => {
                return Ok(Left::default());
            }
            reply => reply?,
        };
        let answer = reply.object()?;
        match answer.get("witnesses").and_then(Left::of) {
            Some(left) => Ok(left),
            None => {
                Err(reply.unexpected("what each witness says of the VM: this vminfod is too old"))
            }
        }
    }

    /// The node's sysinfo.
    pub async fn sysinfo(&self) -> Result<Value, Error> {
        Ok(Value::Object(self.http.execute(Call::get(&["sysinfo"])).await?.object()?))
    }

    /// The uuid of the node, as its sysinfo has it; `None` where it has none.
    pub async fn node_uuid(&self) -> Result<Option<String>, Error> {
        let answer = self.sysinfo().await?;
        let sysinfo = answer.get("sysinfo").unwrap_or(&answer);
        Ok(sysinfo.get("UUID").and_then(Value::as_str).map(uuid_value))
    }

    /// Any other route of the service.
    pub async fn get(&self, call: Call) -> Result<Reply, Error> {
        self.http.execute(call).await
    }

    pub(crate) fn http(&self) -> &Http {
        &self.http
    }
}

/// vminfod's own 404.
fn not_found(name: &str) -> String {
    format!("VM Not Found: {name}")
}

/// Returns the answer if it was read for its request, where that was asked.
fn proved(reply: Reply, sync: Option<&str>) -> Result<Reply, Error> {
    match sync {
        Some(wanted) if reply.text(SYNCED) != Some(wanted) => {
            Err(reply
                .unexpected("an answer that was read for this request: this vminfod is too old"))
        }
        _ => Ok(reply),
    }
}

fn synced(call: Call, sync: bool) -> Call {
    if sync { call.query("sync", TRUE).timeout(SYNC_TIMEOUT) } else { call }
}
