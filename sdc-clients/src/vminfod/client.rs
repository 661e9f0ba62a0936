// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The routes of vminfod other than its stream.

use std::time::Duration;

use serde_json::Value;

use super::types::VmObject;
use super::view::{Incomplete, View};
use crate::error::Error;
use crate::http::{Call, Http, Reply};

/// A synchronous read awaits the node's own commands.
const SYNC_TIMEOUT: Duration = Duration::from_secs(150);
/// A node with many VMs has long lists.
const LIST_CAP: usize = 256 << 20;

/// A client of vminfod. Requests are sent once: the service is on this node.
#[derive(Debug, Clone)]
pub struct Vminfod {
    http: Http,
}

impl Vminfod {
    /// A client of the vminfod at `base_url`.
    pub fn new(base_url: &str) -> Result<Vminfod, Error> {
        let agent = concat!("sdc-clients/", env!("CARGO_PKG_VERSION"));
        Ok(Vminfod::with_http(Http::new(base_url, agent)?.without_retries()))
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

    /// Every VM of the node, hidden ones included; with `sync`, as a load
    /// begun after this request finds them.
    pub async fn vms(&self, sync: bool) -> Result<View, Error> {
        let reply = self.http.execute(synced(Call::get(&["vms"]).body_cap(LIST_CAP), sync)).await?;
        let incomplete = Incomplete::of(reply.headers());
        Ok(View { vms: reply.json("an array of VMs")?, incomplete })
    }

    /// One VM by zone name; with `sync`, as a load begun after this request finds it.
    pub async fn vm(&self, name: &str, sync: bool) -> Result<VmObject, Error> {
        self.http.execute(synced(Call::get(&["vms", name]), sync)).await?.object()
    }

    /// The node's sysinfo.
    pub async fn sysinfo(&self) -> Result<Value, Error> {
        Ok(Value::Object(self.http.execute(Call::get(&["sysinfo"])).await?.object()?))
    }

    /// Any other route of the service.
    pub async fn get(&self, call: Call) -> Result<Reply, Error> {
        self.http.execute(call).await
    }

    pub(crate) fn http(&self) -> &Http {
        &self.http
    }
}

fn synced(call: Call, sync: bool) -> Call {
    if sync { call.query("sync", "true").timeout(SYNC_TIMEOUT) } else { call }
}
