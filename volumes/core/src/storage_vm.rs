// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What VMAPI is asked to make: the storage VM of a volume.

use std::net::Ipv4Addr;

use serde_json::{Map, Value, json};

/// Which kind of storage VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The user-space server, for nodes on which the other cannot run.
    First,
    /// The kernel's server in the zone.
    Second,
}

/// Makes a storage VM export its delegated dataset.
const SCRIPT: &str = "\
#!/usr/bin/bash
# Exports the delegated dataset of this zone over NFS. Runs at each boot.
set -o errexit -o nounset -o pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/opt/local/bin

dataset=\"zones/$(zonename)/data\"
/usr/sbin/zfs list -H -o name \"$dataset\" >/dev/null

# NFS needs the RPC service, and other hosts must reach it.
svccfg -s svc:/network/rpc/bind setprop config/local_only=false
svcadm refresh svc:/network/rpc/bind:default
svcadm enable -s -r svc:/network/rpc/bind:default
svcadm enable -r svc:/network/nfs/server:default

# Root of a client is root of the files: the network is the owner's own.
zfs set sharenfs=rw,anon=0 \"$dataset\"
";

/// What the storage VM of a new volume is made from.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    pub volume_uuid: &'a str,
    pub owner_uuid: &'a str,
    pub image_uuid: &'a str,
    pub package_uuid: &'a str,
    pub networks: &'a [String],
    pub affinity: Option<&'a Value>,
    pub labels: Option<&'a Value>,
    /// The node, where the operator chose it.
    pub server_uuid: Option<&'a str>,
    /// The address on the first network, where the operator chose it.
    pub ip_address: Option<Ipv4Addr>,
}

/// Returns the body of `POST /vms`.
pub fn payload(vm: &str, version: Version, wanted: &Wanted<'_>) -> Map<String, Value> {
    let (brand, internal) = match version {
        Version::Second => {
            let marks = json!({"sdc:system_role": "nfsvolumestorage", "volapi-nfs-version": 2});
            ("joyent", marks)
        }
        Version::First => ("joyent-minimal", json!({"sdc:system_role": "nfsvolumestorage"})),
    };
    let mut payload = Map::new();
    let mut put = |name: &str, value: Value| drop(payload.insert(name.to_owned(), value));
    put("uuid", vm.into());
    put("image_uuid", wanted.image_uuid.into());
    put("billing_id", wanted.package_uuid.into());
    if let Some(affinity) = wanted.affinity {
        put("affinity", affinity.clone());
    }
    put("alias", format!("nfs-shared-volume-{}", wanted.volume_uuid).into());
    put("brand", brand.into());
    put("customer_metadata", json!({"export-volumes": "[\"data\"]", "user-script": SCRIPT}));
    put("delegate_dataset", true.into());
    put("owner_uuid", wanted.owner_uuid.into());
    put("internal_metadata", internal);
    if let Some(labels) = wanted.labels {
        put("tags", labels.clone());
    }
    if let Some(server) = wanted.server_uuid {
        put("server_uuid", server.into());
    }
    put("networks", networks(wanted));
    payload
}

/// The first network is the one from which the volume is mounted.
fn networks(wanted: &Wanted<'_>) -> Value {
    let Some(address) = wanted.ip_address else { return wanted.networks.into() };
    let named = wanted.networks.iter().enumerate().map(|(at, network)| match at {
        0 => json!({"ipv4_uuid": network, "ipv4_ips": [address], "primary": true}),
        _ => json!({"ipv4_uuid": network}),
    });
    named.collect()
}

/// Returns true if VMAPI found no node for the second version: the first may find one.
pub fn wants_first_version(message: &str) -> bool {
    message.contains("No compute resources available")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // V118
    fn the_operator_may_choose_the_node_and_the_address_on_the_first_network() {
        let networks = ["n1".to_owned(), "n2".to_owned()];
        let mut wanted = Wanted {
            volume_uuid: "v",
            owner_uuid: "o",
            image_uuid: "i",
            package_uuid: "p",
            networks: &networks,
            affinity: None,
            labels: None,
            server_uuid: None,
            ip_address: None,
        };
        let usual = payload("vm", Version::Second, &wanted);
        assert_eq!(usual["networks"], json!(["n1", "n2"]));
        assert!(!usual.contains_key("server_uuid"));
        wanted.server_uuid = Some("cn");
        wanted.ip_address = Some(Ipv4Addr::new(10, 0, 0, 7));
        let chosen = payload("vm", Version::First, &wanted);
        assert_eq!(chosen["server_uuid"], "cn");
        let first = json!({"ipv4_uuid": "n1", "ipv4_ips": ["10.0.0.7"], "primary": true});
        assert_eq!(chosen["networks"], json!([first, {"ipv4_uuid": "n2"}]));
    }
}
