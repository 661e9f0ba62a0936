// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What VMAPI's jobs do: NICs of NAPI for a VM, and orders of CNAPI for its node.

use std::time::Duration;

use http::Method;
use mocks::vmapi::Order;
use sdc_clients::Precondition;
use sdc_clients::cnapi::Cnapi;
use sdc_clients::http::{Call, Http};
use sdc_clients::napi::Napi;
use serde_json::{Map, Value, json};

/// The longest that a node may take.
const PATIENCE: Duration = Duration::from_secs(90);

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
        if order.verb == "remove_nics" {
            let macs = order.vm.get("macs").and_then(Value::as_array).into_iter().flatten();
            for mac in macs.filter_map(Value::as_str).filter_map(|mac| mac.parse().ok()) {
                self.napi.delete_nic(mac, Precondition::None).await.map_err(said)?;
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
