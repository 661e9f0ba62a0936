// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The other services of the data centre.

use std::net::IpAddr;
use std::sync::Arc;

use migration_core::checks::object::image;
use migration_core::record::ReservedNic;
use sdc_clients::cnapi::{Cnapi, Ticket};
use sdc_clients::http::{Call, Http, Transport};
use sdc_clients::napi::Napi;
use sdc_clients::vmapi::Vmapi;
use sdc_clients::{Error, quoted};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::refused::Refused;

/// In a ticket's `extra`: the id of the migration that holds it.
pub const MARK: &str = "migration";
/// The scope of the tickets of a VM.
pub const OF_VM: &str = "vm";

/// Where the services are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The VMAPI that this service stands in front of.
    pub vmapi: String,
    pub cnapi: String,
    pub napi: String,
    pub imgapi: String,
    pub papi: String,
}

/// Clients of the services. Each request is sent once: the caller decides whether to repeat it.
#[derive(Clone, Debug)]
pub struct Peers {
    /// The VMAPI behind this service.
    pub vmapi: Vmapi,
    pub cnapi: Cnapi,
    pub napi: Napi,
    /// CNAPI and NAPI for calls that their clients do not have.
    napi_raw: Http,
    pub imgapi: Http,
    pub papi: Http,
}

impl Peers {
    /// Returns clients that speak through `transport`.
    pub fn new(addresses: &Addresses, transport: &Arc<dyn Transport>) -> Result<Peers, Error> {
        let agent = concat!("migration-service/", env!("CARGO_PKG_VERSION"));
        let http = |url: &str| {
            let http = Http::with_transport(url, agent, Arc::clone(transport))?;
            Ok::<Http, Error>(http.without_retries())
        };
        Ok(Peers {
            vmapi: Vmapi::new(http(&addresses.vmapi)?),
            cnapi: Cnapi::new(http(&addresses.cnapi)?),
            napi: Napi::new(http(&addresses.napi)?),
            napi_raw: http(&addresses.napi)?,
            imgapi: http(&addresses.imgapi)?,
            papi: http(&addresses.papi)?,
        })
    }

    /// Checks that NAPI has the network of each NIC, and that the VM's owner may use it.
    pub async fn check_networks(&self, vm: &Map<String, Value>) -> Result<(), Refused> {
        let owner = vm.get("owner_uuid").and_then(Value::as_str).unwrap_or_default();
        let mut seen = Vec::new();
        for nic in vm.get("nics").and_then(Value::as_array).into_iter().flatten() {
            let Some(network) = nic["network_uuid"].as_str().filter(|it| !seen.contains(it)) else {
                continue;
            };
            seen.push(network);
            let ask = async |kind: &str| {
                let call = Call::get(&[kind, network]).query("provisionable_by", owner);
                self.napi_raw.execute(call).await.map(drop)
            };
            let failed = |kind: &str, error: &Error| {
                let message =
                    format!("Failed to find {kind} {}: {}", quoted(network), error.message());
                Refused::passed(500, json!({ "message": message }))
            };
            match ask("network_pools").await {
                Ok(()) => continue,
                Err(error) if error.is_not_found_resource() => {}
                Err(error) => return Err(failed("network pool", &error)),
            }
            match ask("networks").await {
                Ok(()) => {}
                Err(error) if error.is_not_found_resource() => {
                    let message =
                        format!("No such Network or Pool with id/name: {}", quoted(network));
                    return Err(Refused::coded(422, "UnprocessableEntityError", &message));
                }
                Err(error) => return Err(failed("network", &error)),
            }
        }
        Ok(())
    }

    /// Returns the VM's image, if IMGAPI has it.
    pub async fn image(
        &self,
        vm: &Map<String, Value>,
    ) -> Result<Option<Map<String, Value>>, Error> {
        let Some(image) = image(vm) else { return Ok(None) };
        found(self.imgapi.execute(Call::get(&["images", image])).await)
    }

    /// Returns the VM's package; none where the VM has none.
    /// Fails with the sentence of VMAPI where PAPI does not have it.
    pub async fn package(
        &self,
        vm: &Map<String, Value>,
    ) -> Result<Option<Map<String, Value>>, Refused> {
        let package = vm.get("billing_id").and_then(Value::as_str);
        let Some(package) = package.filter(|it| it.parse() != Ok(Uuid::nil())) else {
            return Ok(None);
        };
        match found(self.papi.execute(Call::get(&["packages", package])).await)? {
            Some(package) => Ok(Some(package)),
            None => {
                let message = format!("Package {package} does not exist");
                Err(Refused::parameters("Invalid VM parameters", "billing_id", &message))
            }
        }
    }

    /// Returns those addresses of a VM that are reserved.
    pub async fn reserved(&self, vm: &Map<String, Value>) -> Result<Vec<ReservedNic>, Error> {
        let mut reserved = Vec::new();
        for address in addresses(vm) {
            let network = address.network_uuid.to_string();
            match self.napi.get_ip(&network, address.ip).await {
                Ok(there) if there.value.reserved => reserved.push(address),
                Err(error) if !error.is_not_found_resource() => return Err(error),
                _ => {}
            }
        }
        Ok(reserved)
    }

    /// Releases the tickets of a node that migrations of this VM hold, whichever run took them. One that cannot be
    /// released stays until it expires. Returns whether one was released.
    pub async fn release_left(&self, cn: Uuid, vm: Uuid) -> bool {
        let is_left = |it: &&Ticket| {
            let whose = it.other.get("extra").and_then(|extra| extra[MARK].as_str());
            ["queued", "active"].contains(&it.status.as_str())
                && (it.scope.as_str(), it.id.as_str()) == (OF_VM, vm.to_string().as_str())
                && whose.is_some()
        };
        let released = async {
            let all = self.cnapi.list_tickets(&cn.to_string()).await?;
            let left: Vec<_> = all.iter().filter(is_left).collect();
            for ticket in &left {
                self.cnapi.release_ticket(&ticket.uuid).await?;
            }
            Ok::<_, Error>(!left.is_empty())
        };
        released.await.unwrap_or_else(|error| {
            tracing::warn!(%cn, reason = %error, "cannot release a migration's CNAPI tickets; they stay until they expire");
            false
        })
    }
}

/// Returns the addresses of a VM's NICs.
pub fn addresses(object: &Map<String, Value>) -> Vec<ReservedNic> {
    let mut found = Vec::new();
    for nic in object.get("nics").and_then(Value::as_array).into_iter().flatten() {
        let Some(network_uuid) =
            nic["network_uuid"].as_str().and_then(|it| it.parse::<Uuid>().ok())
        else {
            continue;
        };
        let all = nic["ips"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let texts = all.chain(nic["ip"].as_str()).filter_map(|text| text.split('/').next());
        for ip in texts.filter_map(|text| text.parse::<IpAddr>().ok()) {
            let address = ReservedNic { network_uuid, ip };
            if !found.contains(&address) {
                found.push(address);
            }
        }
    }
    found
}

/// Returns the object of an answer; none where there is no such thing.
fn found(
    reply: Result<sdc_clients::http::Reply, Error>,
) -> Result<Option<Map<String, Value>>, Error> {
    match reply {
        Ok(reply) => Ok(Some(reply.object()?)),
        Err(error) if error.status() == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}
