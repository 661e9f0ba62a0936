// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! VMAPI: the data centre's records of VMs. VMAPI is not asked to query the compute node: that may mark
//! a VM destroyed.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let app = axum::Router::new().fallback(|| async {
//! #     let body = serde_json::json!({ "code": "ResourceNotFound", "message": "VM not found" });
//! #     (axum::http::StatusCode::NOT_FOUND, axum::Json(body))
//! # });
//! # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! # let url = format!("http://{}", listener.local_addr()?);
//! # tokio::spawn(async move { axum::serve(listener, app).await });
//! let http = sdc_clients::Http::new(&url, "net-agent/1.0")?;
//! let vmapi = sdc_clients::vmapi::Vmapi::new(http);
//! match vmapi.get_vm("00000000-0000-4000-8000-000000000001").await {
//!     Ok(vm) => println!("{} is {}", vm.uuid, vm.state),
//!     Err(e) if e.is_not_found_resource() => println!("VMAPI never heard of it"),
//!     Err(e) => return Err(e.into()),
//! }
//! # Ok(()) }
//! ```

mod types;

use std::collections::{BTreeMap, HashSet};

use ::http::{Method, StatusCode};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::http::{Call, Http, LIST_TIMEOUT};
use crate::uuids::uuid_value;

pub use types::{Vm, VmQuery};

/// A page of VMs with much metadata.
const LIST_CAP: usize = 256 << 20;
/// The server's own maximum.
const PAGE: usize = 1000;
const MOST_VMS: usize = 1_000_000;
/// UUIDs in one request: an address line of some 4 kB.
const STATUSES: usize = 100;

/// Returns the uuid of a record.
fn uuid_of(record: &Map<String, Value>) -> Option<String> {
    record.get("uuid").and_then(Value::as_str).map(uuid_value)
}

/// A client of VMAPI.
#[derive(Debug, Clone)]
pub struct Vmapi {
    http: Http,
}

impl Vmapi {
    /// A client that speaks through `http`.
    pub fn new(http: Http) -> Vmapi {
        Vmapi { http }
    }

    /// The answer of `/ping`.
    pub async fn ping(&self) -> Result<Map<String, Value>, Error> {
        self.http.execute(Call::get(&["ping"])).await?.object()
    }

    /// One VM as last recorded; destroyed ones are found too.
    pub async fn get_vm(&self, uuid: &str) -> Result<Vm, Error> {
        let reply = self.http.execute(Call::get(&["vms", uuid])).await?;
        let vm: Vm = reply.json("a VM")?;
        if vm.uuid != uuid {
            return Err(reply.unexpected(&format!("the VM {uuid}")));
        }
        Ok(vm)
    }

    /// One VM's record as it is stored, whatever is in it.
    pub async fn record(&self, uuid: &str) -> Result<Map<String, Value>, Error> {
        let reply = self.http.execute(Call::get(&["vms", uuid])).await?;
        let record = reply.object()?;
        match uuid_of(&record) {
            Some(found) if found == uuid_value(uuid) => Ok(record),
            _ => Err(reply.unexpected(&format!("the VM {uuid}"))),
        }
    }

    /// Returns every VM that matches, or an error.
    pub async fn list_vms(&self, query: &VmQuery) -> Result<Vec<Vm>, Error> {
        let records = self.records(query).await?;
        let vms = records.into_iter().map(|vm| serde_json::from_value(Value::Object(vm)));
        vms.collect::<Result<_, _>>().map_err(|error| {
            let status = Some(StatusCode::OK);
            let text = error.to_string();
            Error::protocol(&Method::GET, "/vms", status, "an array of VMs", text.as_bytes())
        })
    }

    /// Returns the record of every VM that matches, whatever is in it, or an error.
    ///
    /// Each page begins after the last VM of the one before, so that records that come and go meanwhile
    /// hide no other.
    pub async fn records(&self, query: &VmQuery) -> Result<Vec<Map<String, Value>>, Error> {
        let mut found: Vec<Map<String, Value>> = Vec::new();
        let mut seen = HashSet::new();
        let mut marker: Option<String> = None;
        loop {
            let call = Call::get(&["vms"]).timeout(LIST_TIMEOUT).body_cap(LIST_CAP);
            let call = query.apply(call).query("limit", PAGE).query_opt("marker", marker.as_ref());
            let reply = self.http.execute(call).await?;
            reply.require(StatusCode::OK)?;
            let vms: Vec<Map<String, Value>> = reply.json("an array of VMs")?;
            if vms.len() > PAGE {
                return Err(reply.unexpected(&format!("at most {PAGE} VMs")));
            }
            let whole = vms.len() == PAGE;
            // Counts all that match, not what follows the marker: what came or went since the first
            // page would mislead.
            let count = reply.text("x-joyent-resource-count").and_then(|count| count.parse().ok());
            let is_all = marker.is_none() && count == Some(vms.len());
            let before = found.len();
            for vm in vms {
                let Some(uuid) = uuid_of(&vm) else {
                    // One bad record must not hide the others.
                    tracing::warn!("VMAPI lists a record without a uuid");
                    continue;
                };
                // An object, as the service asks for it.
                marker = Some(serde_json::json!({ "uuid": uuid }).to_string());
                if seen.insert(uuid) {
                    found.push(vm);
                }
            }
            if !whole || is_all {
                return Ok(found);
            }
            if found.len() == before {
                return Err(reply.unexpected("another page than the ones before"));
            }
            if found.len() >= MOST_VMS {
                return Err(reply.unexpected(&format!("fewer than {MOST_VMS} VMs")));
            }
        }
    }

    /// The states of VMs by UUID; VMs that are not known are absent.
    pub async fn statuses(&self, uuids: &[String]) -> Result<BTreeMap<String, String>, Error> {
        let mut found = BTreeMap::new();
        for some in uuids.chunks(STATUSES) {
            let call = Call::get(&["statuses"]).query_list("uuids", some);
            let reply = self.http.execute(call).await?;
            let part: BTreeMap<String, String> = reply.json("an object of states")?;
            found.extend(part);
        }
        Ok(found)
    }

    /// Replaces the record of one VM: `vm` must be the whole object.
    pub async fn put_vm(&self, uuid: &str, vm: &Map<String, Value>) -> Result<(), Error> {
        self.http.execute(Call::new(Method::PUT, &["vms", uuid]).json(vm)).await?;
        Ok(())
    }

    /// Replaces the records of the VMs in `vms` (whole objects by UUID). Records of other VMs are not
    /// changed.
    pub async fn put_vms(&self, server_uuid: &str, vms: &Map<String, Value>) -> Result<(), Error> {
        let call = Call::new(Method::PUT, &["vms"]).query("server_uuid", server_uuid);
        let body = serde_json::json!({ "vms": vms });
        self.http.execute(call.json(&body).timeout(LIST_TIMEOUT)).await?;
        Ok(())
    }
}
