// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! VMAPI: the data centre's records of VMs. Never asks it to query the
//! compute node: that may mark a VM destroyed.
//!
//! ```no_run
//! # async fn f() -> Result<(), sdc_clients::Error> {
//! let http = sdc_clients::Http::new("http://vmapi.example.com", "net-agent/1.0")?;
//! let vmapi = sdc_clients::vmapi::Vmapi::new(http);
//! match vmapi.get_vm("00000000-0000-4000-8000-000000000001").await {
//!     Ok(vm) => println!("{} is {}", vm.uuid, vm.state),
//!     Err(e) if e.is_not_found_resource() => println!("VMAPI never heard of it"),
//!     Err(e) => return Err(e),
//! }
//! # Ok(()) }
//! ```

mod types;

use std::collections::HashSet;

use ::http::{Method, StatusCode};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::http::{Call, Http, LIST_TIMEOUT};

pub use types::{Vm, VmQuery};

/// The server's own maximum.
const PAGE: u32 = 1000;
const MOST_VMS: u32 = 1_000_000;

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

    /// Every VM that matches, or an error: never a part of them.
    pub async fn list_vms(&self, query: &VmQuery) -> Result<Vec<Vm>, Error> {
        let mut found: Vec<Vm> = Vec::new();
        let mut seen = HashSet::new();
        let mut offset = 0;
        loop {
            let call = Call::get(&["vms"]).timeout(LIST_TIMEOUT);
            let call = query.apply(call).query("limit", PAGE).query("offset", offset);
            let reply = self.http.execute(call).await?;
            reply.require(StatusCode::OK)?;
            let vms: Vec<Vm> = reply.json("an array of VMs")?;
            let count = u32::try_from(vms.len()).unwrap_or(u32::MAX);
            let before = found.len();
            found.extend(vms.into_iter().filter(|vm| seen.insert(vm.uuid.clone())));
            if count < PAGE {
                return Ok(found);
            }
            if found.len() == before {
                return Err(reply.unexpected("another page than the ones before"));
            }
            offset += count;
            if offset >= MOST_VMS {
                return Err(reply.unexpected(&format!("fewer than {MOST_VMS} VMs")));
            }
        }
    }

    /// Replaces the record of one VM: `vm` must be the whole object.
    pub async fn put_vm(&self, uuid: &str, vm: &Map<String, Value>) -> Result<(), Error> {
        self.http.execute(Call::new(Method::PUT, &["vms", uuid]).json(vm)).await?;
        Ok(())
    }

    /// Replaces the records of all VMs of a compute node: whoever is missing
    /// from `vms` (whole objects by UUID) is taken for destroyed.
    pub async fn put_vms(&self, server_uuid: &str, vms: &Map<String, Value>) -> Result<(), Error> {
        let call = Call::new(Method::PUT, &["vms"]).query("server_uuid", server_uuid);
        let body = serde_json::json!({ "vms": vms });
        self.http.execute(call.json(&body).timeout(LIST_TIMEOUT)).await?;
        Ok(())
    }
}
