// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What VMAPI's jobs do: NICs of NAPI for a VM, and orders of CNAPI for its node.

use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Method;
use mocks::vmapi::Order;
use mocks::workflow;
use sdc_clients::cnapi::Cnapi;
use sdc_clients::http::{Call, Http};
use sdc_clients::napi::Napi;
use sdc_clients::vminfod::VmFields as _;
use sdc_clients::{MacAddr, Precondition};
use serde_json::{Map, Value, json};

use super::asking::OWN_AGENT;
use super::error::LabError;
use super::ports::local;
use super::world::World;

/// The longest that a node may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// Has VMAPI's jobs done in a world whose VMs are known. They are kept where this is, for as long as it is.
pub(super) async fn start(world: &World) -> Result<workflow::Server, LabError> {
    let jobs = workflow::Server::start(local(0)).await;
    let jobs = jobs.map_err(LabError::io("listening on a free port as the workflow API"))?;
    let hands = Jobs::new(client(&world.cnapi_url())?, client(&world.napi.url())?);
    let vms = world.vmapi.store();
    vms.peers().chosen = world.node().cn_uuid().to_owned();
    vms.peers().workflow_url = jobs.url();
    let known = world.centre().papi.store().all().into_iter().filter_map(|package| {
        let gives = ["cpu_cap", "max_physical_memory"].into_iter();
        let gives = gives.filter_map(|key| Some((key.to_owned(), package.get(key)?.clone())));
        Some((package.get("uuid")?.as_str()?.to_owned(), gives.collect()))
    });
    vms.peers().packages = Some(known.collect());
    let hands = move |order| -> BoxFuture<'static, Result<(), String>> {
        let hands = hands.clone();
        Box::pin(async move { hands.carry_out(order).await })
    };
    vms.run_jobs(jobs.store().clone(), std::sync::Arc::new(hands));
    Ok(jobs)
}

fn client(url: &str) -> Result<Http, LabError> {
    let http = Http::new(url, OWN_AGENT).map_err(LabError::request(url))?;
    Ok(http.without_retries())
}

/// Clients of the services that jobs ask.
#[derive(Clone, Debug)]
pub(super) struct Jobs {
    node: Http,
    cnapi: Cnapi,
    napi: Napi,
}

fn said(error: sdc_clients::Error) -> String {
    error.to_string()
}

impl Jobs {
    pub(super) fn new(cnapi: Http, napi: Http) -> Jobs {
        Jobs { node: cnapi.clone(), cnapi: Cnapi::new(cnapi), napi: Napi::new(napi) }
    }

    /// Does what VMAPI was asked for, or says why that failed.
    pub(super) async fn carry_out(&self, order: Order) -> Result<(), String> {
        let (server, vm) = (&order.server_uuid, &order.vm_uuid);
        let task = match order.verb {
            "create" => {
                let mut payload = order.vm.clone();
                payload.insert("uuid".to_owned(), json!(vm));
                payload.shift_remove("networks");
                let disk = order.vm.get("disks").map(|disks| &disks[0]["image_uuid"]);
                let image = json!({ "uuid": order.vm.get("image_uuid").or(disk),
                    "files": [{ "compression": "gzip", "size": 1000, "sha1": "" }] });
                payload.insert("image".to_owned(), image);
                payload.insert("nics".to_owned(), self.nics(&order).await?.into());
                self.cnapi.create_vm(server, &payload).await.map_err(said)?
            }
            "delete" => self.cnapi.delete_vm(server, vm, false).await.map_err(said)?,
            "add_nics" => {
                let update = json!({ "add_nics": self.nics(&order).await? });
                self.order(&order, "update", &update).await?
            }
            "remove_nics" => {
                let update = json!({ "remove_nics": order.vm.get("macs") });
                self.order(&order, "update", &update).await?
            }
            verb @ ("update" | "reprovision") => self.order(&order, verb, &json!(order.vm)).await?,
            verb => self.order(&order, verb, &json!({})).await?,
        };
        let task = self.cnapi.wait_task(&task, PATIENCE).await.map_err(said)?;
        if !task.is_complete() {
            return Err(task.error().unwrap_or("no word").to_owned());
        }
        // Both jobs delete them in NAPI, one after the other; one that is gone already is none.
        let gone: Vec<MacAddr> = match order.verb {
            "remove_nics" => {
                let macs = order.vm.get("macs").and_then(Value::as_array).into_iter().flatten();
                macs.filter_map(Value::as_str).filter_map(|mac| mac.parse().ok()).collect()
            }
            "delete" => order.vm.macs(),
            _ => Vec::new(),
        };
        for mac in gone {
            match self.napi.delete_nic(mac, Precondition::None).await {
                Err(error) if !error.is_not_found_resource() => return Err(said(error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Orders a node to do something with a VM; returns the task.
    async fn order(&self, order: &Order, verb: &str, body: &Value) -> Result<String, String> {
        let path = ["servers", &order.server_uuid, "vms", &order.vm_uuid, verb];
        let reply = self.node.execute(Call::new(Method::POST, &path).json(body)).await;
        let task = reply.and_then(|reply| reply.object()).map_err(said)?;
        Ok(task.get("id").and_then(Value::as_str).unwrap_or_default().to_owned())
    }

    /// Has NAPI make a NIC on each network that an order names; returns them as the node takes them.
    async fn nics(&self, order: &Order) -> Result<Vec<Value>, String> {
        let networks = order.vm.get("networks").and_then(Value::as_array).into_iter().flatten();
        let mut nics = Vec::new();
        for network in networks {
            let network =
                network.as_str().or(network["uuid"].as_str()).or(network["ipv4_uuid"].as_str());
            let nic = json!({"belongs_to_uuid": order.vm_uuid, "belongs_to_type": "zone",
                "owner_uuid": order.vm.get("owner_uuid"), "cn_uuid": order.server_uuid,
                "state": "provisioning", "primary": order.verb == "create" && nics.is_empty()});
            let nic = nic.as_object().cloned().unwrap_or_default();
            let made = self.napi.provision_nic(network.unwrap_or_default(), &nic).await;
            let made = serde_json::to_value(made.map_err(said)?.value);
            let made = made.map_err(|error| error.to_string())?;
            let keys =
                ["mac", "ip", "netmask", "nic_tag", "vlan_id", "mtu", "primary", "network_uuid"];
            let key = |key: &str| Some((key.to_owned(), made.get(key)?.clone()));
            nics.push(Value::Object(keys.into_iter().filter_map(key).collect::<Map<_, _>>()));
        }
        Ok(nics)
    }
}
