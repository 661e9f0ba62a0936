// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What NAPI has of the VM. Its addresses are reserved while the VM moves: NAPI then gives them to no other NIC. Where
//! the node of a copy is gone, its NICs may be gone from NAPI too.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use migration_core::intent::End;
use migration_core::protocol::Observe;
use migration_core::record::node_of;
use sdc_clients::http::Precondition;
use sdc_clients::napi::{BelongsToType, IpUpdate, Nic};
use sdc_clients::{Error, MacAddr};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::observe::{about, is_old};
use super::order::Failed;
use crate::peers::addresses;
use crate::records::Stored;
use crate::state::Service;
use store::Fence;

/// What NAPI keeps of a NIC besides whose it is and where.
const KEPT: [&str; 10] = [
    "ip",
    "network_uuid",
    "nic_tag",
    "vlan_id",
    "primary",
    "model",
    "allow_dhcp_spoofing",
    "allow_ip_spoofing",
    "allow_mac_spoofing",
    "allow_restricted_traffic",
];

/// A request whose answer did not come is done after so many milliseconds, or never. NAPI's own tries took up to 13 s.
const LATEST: i64 = 120_000;

/// Finds out whether the addresses can be reserved later: NAPI has them, and they are this VM's or nobody's.
pub async fn rehearse(service: &Service, object: &Map<String, Value>) -> Result<(), Failed> {
    let vm = object.get("uuid").and_then(Value::as_str).unwrap_or_default();
    for address in addresses(object) {
        let network = address.network_uuid.to_string();
        let there = service.peers.napi.get_ip(&network, address.ip).await?.value;
        if let Some(whose) = there.belongs_to_uuid.filter(|whose| !whose.eq_ignore_ascii_case(vm)) {
            let ip = address.ip;
            return Err(Failed::Fatal(format!("NAPI gives the VM's address {ip} to {whose}")));
        }
    }
    Ok(())
}

/// Reserves the addresses of the VM. What is reserved already was not reserved here, and stays. The record names an
/// address before it is reserved, and until when that may happen; an agent has accepted the revision that names it, so
/// that a store which has lost the name is known to be older.
pub async fn reserve(
    service: &Service,
    kept: &mut Stored,
    object: &Map<String, Value>,
    fence: &Fence,
) -> Result<(), Failed> {
    let unheard = kept.record.intent.reserves_until;
    let (mut free, mut is_new) = (Vec::new(), false);
    for address in addresses(object) {
        let there =
            service.peers.napi.get_ip(&address.network_uuid.to_string(), address.ip).await?;
        if there.value.reserved {
            continue;
        }
        if !kept.record.reserved_nics.contains(&address) {
            kept.record.reserved_nics.push(address.clone());
            is_new = true;
        }
        free.push((address, there.etag));
    }
    if is_new {
        kept.raise();
    }
    for (nth, (address, etag)) in free.into_iter().enumerate() {
        kept.record.intent.reserves_until = Some(service.clock.now().plus(LATEST));
        service.records.write(kept, Some(fence)).await?;
        if is_new && nth == 0 {
            accepted(service, kept).await?;
        }
        set(service, &address.network_uuid.to_string(), address.ip, true, etag).await?;
    }
    kept.record.intent.reserves_until = unheard;
    kept.record.intent.reserved = true;
    service.records.write(kept, Some(fence)).await?;
    Ok(())
}

/// An agent accepts the record's revision.
async fn accepted(service: &Service, kept: &Stored) -> Result<(), Failed> {
    for end in [End::Target, End::Source] {
        let Some(cn) = node_of(&kept.record, end) else { continue };
        let asked = Observe { about: about(&kept.record, end), brief: true };
        match service.agents.observe(cn, &asked).await {
            Err(error) if is_old(&error) => return Err(Failed::Lost),
            Err(_) if end == End::Target => {} // the source may be dead, or the target: one of them knows
            observed => return observed.map(drop).map_err(Failed::from),
        }
    }
    Ok(())
}

/// Removes the reservations that this migration made, when none can be made any more. The VM runs already.
pub async fn unreserve(service: &Service, kept: &mut Stored, fence: &Fence) -> Result<(), Failed> {
    if let Some(until) = kept.record.intent.reserves_until {
        let left = until.since(service.clock.now()).clamp(0, LATEST);
        tokio::time::sleep(Duration::from_millis(left.unsigned_abs())).await;
    }
    for address in &kept.record.reserved_nics {
        let network = address.network_uuid.to_string();
        let there = match service.peers.napi.get_ip(&network, address.ip).await {
            Err(error) if error.is_not_found_resource() => continue, // the network is gone
            there => there?,
        };
        if there.value.reserved {
            set(service, &network, address.ip, false, there.etag).await?;
        }
    }
    kept.record.reserved_nics.clear();
    kept.record.intent.reserved = false;
    kept.record.intent.reserves_until = None;
    service.records.write(kept, Some(fence)).await?;
    Ok(())
}

/// Gives NAPI the NICs of the VM that it lacks, on its node: a node that was installed anew has reported the VM to
/// VMAPI as destroyed, and has deleted its NICs. An address that is another VM's by now, of either kind, is refused,
/// and the VM stays down.
pub async fn register(
    service: &Service,
    object: &Map<String, Value>,
    cn: Uuid,
) -> Result<(), Failed> {
    let vm = object.get("uuid").and_then(Value::as_str).unwrap_or_default();
    for (mac, nic) in nics(object, cn) {
        let napi = &service.peers.napi;
        match napi.get_nic(mac).await {
            Err(error) if error.is_not_found_resource() => {}
            there => {
                let Nic { belongs_to_type: kind, belongs_to_uuid: whose, .. } = there?.value;
                if kind == BelongsToType::Zone && whose.eq_ignore_ascii_case(vm) {
                    continue;
                }
                return Err(Failed::Fatal(format!(
                    "NAPI gives the VM's NIC {mac} to the {} {whose}",
                    kind.as_str()
                )));
            }
        }
        let refused = |error: Error| match Failed::from(error) {
            Failed::Fatal(why) => {
                Failed::Fatal(format!("NAPI has no NIC {mac} and takes none: {why}"))
            }
            failed => failed,
        };
        napi.create_nic(&nic).await.map_err(refused)?;
        tracing::warn!(%mac, %cn, vm = %nic["belongs_to_uuid"], "NAPI had no record of a NIC of a rescued VM; created it");
    }
    Ok(())
}

/// Returns the NICs of a VM, as NAPI takes them. A network says the tag and the VLAN; NAPI takes no address of IPv6.
fn nics(object: &Map<String, Value>, cn: Uuid) -> Vec<(MacAddr, Map<String, Value>)> {
    let nics = object.get("nics").and_then(Value::as_array).into_iter().flatten();
    let of = |nic: &Map<String, Value>| {
        let mac: MacAddr = nic.get("mac")?.as_str()?.parse().ok()?;
        let is_given = |key: &str| match key {
            "ip" => nic["ip"].as_str().is_some_and(|ip| ip.parse::<Ipv4Addr>().is_ok()),
            "nic_tag" | "vlan_id" => !nic.contains_key("network_uuid"),
            _ => true,
        };
        let kept = KEPT.iter().filter(|key| nic.contains_key(**key) && is_given(key));
        let mut given: Map<_, _> = kept.map(|key| ((*key).to_owned(), nic[*key].clone())).collect();
        given.extend([
            ("mac".to_owned(), json!(mac)),
            ("owner_uuid".to_owned(), object.get("owner_uuid")?.clone()),
            ("belongs_to_type".to_owned(), json!("zone")),
            ("belongs_to_uuid".to_owned(), object.get("uuid")?.clone()),
            ("cn_uuid".to_owned(), json!(cn)),
            ("state".to_owned(), json!("running")),
            ("check_owner".to_owned(), json!(false)),
        ]);
        Some((mac, given))
    };
    nics.filter_map(Value::as_object).filter_map(of).collect()
}

async fn set(
    service: &Service,
    network: &str,
    ip: IpAddr,
    reserved: bool,
    etag: Option<String>,
) -> Result<(), Failed> {
    let condition = etag.map_or(Precondition::None, Precondition::IfMatch);
    let update = IpUpdate { reserved: Some(reserved) };
    service.peers.napi.update_ip(network, ip, &update, condition).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nic_is_given_as_napi_takes_it() {
        let object = json!({"uuid": "vm", "owner_uuid": "owner", "nics": [
            {"mac": "90:b8:d0:0:0:1", "interface": "net0", "ip": "10.0.0.4", "ips": ["10.0.0.4/24"], "netmask": "x",
             "network_uuid": "net", "nic_tag": "external", "vlan_id": 3, "primary": true},
            {"mac": "90:b8:d0:00:00:02", "ip": "dhcp", "nic_tag": "admin", "vlan_id": 0},
            {"mac": "no", "ip": "10.0.0.5"},
        ]});
        let common = |mac: &str| {
            json!({"mac": mac, "owner_uuid": "owner", "belongs_to_type": "zone", "belongs_to_uuid": "vm",
                   "cn_uuid": Uuid::nil(), "state": "running", "check_owner": false})
        };
        let [mut first, mut second] = [common("90:b8:d0:00:00:01"), common("90:b8:d0:00:00:02")];
        let more = [
            (&mut first, json!({"ip": "10.0.0.4", "network_uuid": "net", "primary": true})),
            (&mut second, json!({"nic_tag": "admin", "vlan_id": 0})),
        ];
        for (of, more) in more {
            of.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        }
        let found = nics(object.as_object().unwrap(), Uuid::nil());
        let found: Vec<_> = found.into_iter().map(|(_, nic)| Value::Object(nic)).collect();
        assert_eq!(found, [first, second]);
    }
}
