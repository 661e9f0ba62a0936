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

mod changefeed; // every change of a record

mod records; // complete listings, page by page

mod types; // records on the wire

use std::collections::BTreeMap;

use ::http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::http::{Call, Http, LIST_TIMEOUT, Reply};
use crate::jitter::Jitter;
use crate::uuids::uuid_value;

use records::{MOST_UUIDS, uuid_of};

pub use changefeed::{Change, Changefeed, FeedEvent, Subscription};
pub use types::{Ordered, Vm, VmQuery};

/// Returns what was ordered, if it is for the VM that was meant.
fn ordered(reply: &Reply, wanted: Option<&str>) -> Result<Ordered, Error> {
    reply.require(StatusCode::ACCEPTED)?;
    let mut ordered: Ordered = reply.json("a VM and a job")?;
    ordered.workflow = reply.text("workflow-api").map(str::to_owned);
    match wanted {
        Some(uuid) if ordered.vm_uuid != uuid => Err(reply.unexpected(&format!("the VM {uuid}"))),
        _ => Ok(ordered),
    }
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
        records::list(&self.http, query).await
    }

    /// Follows the changes of all records, from a full listing on; `jitter` spreads the reconnects.
    pub fn changefeed(&self, wanted: Subscription, jitter: Jitter) -> Changefeed {
        Changefeed::new(self.http.clone(), wanted, jitter)
    }

    /// Orders a VM. It is in state `provisioning` when this returns, or in none where VMAPI refuses; where the
    /// answer was lost, [`Vmapi::get_vm`] of a uuid that the caller chose says which.
    pub async fn create_vm(&self, payload: &Map<String, Value>) -> Result<Ordered, Error> {
        let reply = self.http.execute(Call::new(Method::POST, &["vms"]).json(payload)).await?;
        ordered(&reply, None)
    }

    /// Orders that a VM be deleted. It is gone when its record says `destroyed`.
    pub async fn delete_vm(&self, uuid: &str) -> Result<Ordered, Error> {
        let reply = self.http.execute(Call::new(Method::DELETE, &["vms", uuid])).await?;
        ordered(&reply, Some(uuid))
    }

    /// Orders that a VM be stopped. VMAPI refuses where it is stopped already.
    pub async fn stop_vm(&self, uuid: &str) -> Result<Ordered, Error> {
        self.act(uuid, "stop", &Map::new()).await
    }

    /// Orders that a VM be started. VMAPI refuses where it runs already.
    pub async fn start_vm(&self, uuid: &str) -> Result<Ordered, Error> {
        self.act(uuid, "start", &Map::new()).await
    }

    /// Orders that a VM be rebooted.
    pub async fn reboot_vm(&self, uuid: &str) -> Result<Ordered, Error> {
        self.act(uuid, "reboot", &Map::new()).await
    }

    /// Orders that a VM be made anew from an image. What is in its delegated dataset stays.
    pub async fn reprovision_vm(&self, uuid: &str, image_uuid: &str) -> Result<Ordered, Error> {
        let body = Map::from_iter([("image_uuid".to_owned(), image_uuid.into())]);
        self.act(uuid, "reprovision", &body).await
    }

    async fn act(
        &self,
        uuid: &str,
        action: &str,
        body: &Map<String, Value>,
    ) -> Result<Ordered, Error> {
        let call = Call::new(Method::POST, &["vms", uuid]).query("action", action).json(body);
        ordered(&self.http.execute(call).await?, Some(uuid))
    }

    /// The states of VMs by UUID; VMs that are not known are absent.
    pub async fn statuses(&self, uuids: &[String]) -> Result<BTreeMap<String, String>, Error> {
        let mut found = BTreeMap::new();
        for some in uuids.chunks(MOST_UUIDS) {
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
        let body = json!({ "vms": vms });
        self.http.execute(call.json(&body).timeout(LIST_TIMEOUT)).await?;
        Ok(())
    }

    /// Orders that keys be added to a VM's internal metadata, or changed; others stay. VMAPI's record has them
    /// once the node has.
    pub async fn add_internal_metadata(
        &self,
        uuid: &str,
        values: &Map<String, Value>,
    ) -> Result<Ordered, Error> {
        let call = Call::new(Method::POST, &["vms", uuid, "internal_metadata"]).json(values);
        ordered(&self.http.execute(call).await?, Some(uuid))
    }

    /// Orders that a VM get one NIC on each of these networks. It sees them after its next boot.
    pub async fn add_nics(&self, uuid: &str, networks: &[&str]) -> Result<Ordered, Error> {
        let networks: Vec<Value> =
            networks.iter().map(|network| json!({ "uuid": network })).collect();
        let body = Map::from_iter([("networks".to_owned(), networks.into())]);
        self.act(uuid, "add_nics", &body).await
    }

    /// Orders that a VM lose the NICs with these addresses. They are gone after its next boot.
    pub async fn remove_nics(&self, uuid: &str, macs: &[&str]) -> Result<Ordered, Error> {
        let body = Map::from_iter([("macs".to_owned(), macs.into())]);
        self.act(uuid, "remove_nics", &body).await
    }

    /// Orders that a VM have these tags and no others.
    pub async fn set_tags(&self, uuid: &str, tags: &Map<String, Value>) -> Result<Ordered, Error> {
        let method = if tags.is_empty() { Method::DELETE } else { Method::PUT };
        let call = Call::new(method, &["vms", uuid, "tags"]);
        let call = if tags.is_empty() { call } else { call.json(tags) };
        ordered(&self.http.execute(call).await?, Some(uuid))
    }
}
