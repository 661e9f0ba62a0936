// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The verbs of `vm` and their output.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::{Value, json};

use crate::edits::ConfigMap;
use crate::error::NodeError;
use crate::getopt::{Ended, Failed, Said};
use crate::node::Node;
use crate::payload::Payload;
use crate::state::Zone;
use crate::verbs::Verbs;
use crate::vmadm::judge;
use crate::vmadm::table::Action;
use crate::xml::Element;
use crate::{config, sample, sysevent, zones};

/// `testbed vm VERB`.
#[derive(Subcommand)]
pub(crate) enum VmVerb {
    /// Create a VM from a payload, or a generated one
    Create {
        /// Payload in JSON; `-` is stdin
        #[arg(short, long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Brand of a generated VM (docker: an lx one)
        #[arg(long, conflicts_with = "file")]
        brand: Option<String>,
        /// Seed of a generated VM
        #[arg(long, conflicts_with = "file")]
        seed: Option<u64>,
    },
    /// Say whether vmadm would take a payload, and which properties it would not
    Validate {
        /// What the payload is for
        #[arg(value_name = "create|update")]
        action: String,
        /// The VM's brand, for an update
        brand: Option<String>,
        /// Payload in JSON; stdin without it
        #[arg(short, long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Start a VM
    Boot { vm: String },
    /// Stop a VM
    Halt {
        vm: String,
        /// Wait status of init
        #[arg(long, allow_negative_numbers = true)]
        status: Option<i64>,
        /// Without a shutdown, as `vmadm stop -F`
        #[arg(short = 'F', long, conflicts_with = "status")]
        force: bool,
    },
    /// Reboot a VM
    Reboot { vm: String },
    /// Delete a VM
    Delete {
        vm: String,
        /// As zoneadm and zonecfg would, behind vmadm's back
        #[arg(long)]
        raw: bool,
    },
    /// Set the quota in GiB
    SetQuota { vm: String, gib: u64 },
    /// Change a VM: KEY=VALUE pairs, or a payload with add_nics, set_tags and the like
    Update {
        vm: String,
        /// Payload in JSON; `-` is stdin
        #[arg(short, long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Fields to set, each a text; an empty one removes the field
        #[arg(value_name = "KEY=VALUE")]
        fields: Vec<String>,
    },
    /// Take a snapshot
    Snapshot { vm: String, name: String },
    /// Delete a snapshot
    DeleteSnapshot { vm: String, name: String },
    /// Go back to a snapshot
    Rollback { vm: String, name: String },
    /// Add a NIC, and print its MAC
    AddNic {
        vm: String,
        /// MAC address; made up if absent
        #[arg(long)]
        mac: Option<String>,
        /// IPv4 address
        #[arg(long)]
        ip: Option<std::net::Ipv4Addr>,
        /// NIC tag
        #[arg(long, default_value = "admin")]
        nic_tag: String,
        /// UUID of the network
        #[arg(long)]
        network: Option<String>,
        /// VLAN
        #[arg(long, value_parser = clap::value_parser!(u16).range(0..4095))]
        vlan: Option<u16>,
    },
    /// Remove a NIC
    RemoveNic { vm: String, mac: String },
    /// Set a tag; the value is JSON or plain text
    SetTag {
        vm: String,
        key: String,
        #[arg(required_unless_present = "remove")]
        value: Option<String>,
        /// Remove it instead
        #[arg(long, conflicts_with = "value")]
        remove: bool,
    },
    /// Set a metadata key; the value is JSON or plain text
    SetMetadata {
        vm: String,
        key: String,
        #[arg(required_unless_present = "remove")]
        value: Option<String>,
        /// Remove it instead
        #[arg(long, conflicts_with = "value")]
        remove: bool,
        /// Internal metadata
        #[arg(long)]
        internal: bool,
    },
    /// Hide a VM from inventory (do_not_inventory)
    Hide { vm: String },
    /// Show a hidden VM again
    Show { vm: String },
    /// Let the guest restart itself: a new init in the running zone
    RestartInit { vm: String },
    /// Print a VM as vminfod has it, or as the node's files have it when vminfod is down
    Get { vm: String },
    /// List the VMs
    List {
        /// In JSON
        #[arg(short)]
        json: bool,
    },
}

impl VmVerb {
    /// Does it and returns what is printed.
    pub(crate) async fn run(self, verbs: &Verbs) -> Result<Said, NodeError> {
        let prints = |text: String| Said::from(Ok(text));
        match self {
            VmVerb::Validate { action, brand, file } => {
                let ended = validate(verbs.node(), &action, brand.as_deref(), file.as_deref());
                return ended.map(Said::from);
            }
            VmVerb::Create { file, brand, seed } => {
                let vm = read_payload(file.as_ref(), brand.as_deref(), seed)?;
                return Ok(prints(format!("{}\n", verbs.create(&vm).await?)));
            }
            VmVerb::Boot { vm } => verbs.boot(&vm).await?,
            VmVerb::Halt { vm, force: true, .. } => verbs.halt(&vm, zones::CLEAN_EXIT).await?,
            VmVerb::Halt { vm, status, .. } => verbs.halt(&vm, wait_status(status)).await?,
            VmVerb::Reboot { vm } => verbs.reboot(&vm).await?,
            VmVerb::Delete { vm, raw: false } => verbs.delete(&vm).await?,
            VmVerb::Delete { vm, raw: true } => verbs.delete_raw(&vm).await?,
            VmVerb::SetQuota { vm, gib } => verbs.set_quota(&vm, gib).await?,
            VmVerb::Update { vm, file, fields } => {
                let mut changes = match &file {
                    Some(file) => read_payload(Some(file), None, None)?,
                    None => Payload::new(),
                };
                for field in fields {
                    let (key, value) = field
                        .split_once('=')
                        .ok_or_else(|| NodeError::invalid(field.as_str(), "expected KEY=VALUE"))?;
                    changes.insert(key.to_string(), json!(value));
                }
                if changes.is_empty() {
                    return Err(NodeError::invalid(
                        "update",
                        "nothing to change: give KEY=VALUE or --file",
                    ));
                }
                verbs.update(&vm, &changes).await?;
            }
            VmVerb::Snapshot { vm, name } => verbs.snapshot(&vm, &name).await?,
            VmVerb::DeleteSnapshot { vm, name } => verbs.delete_snapshot(&vm, &name).await?,
            VmVerb::Rollback { vm, name } => verbs.rollback(&vm, &name).await?,
            VmVerb::AddNic { vm, mac, ip, nic_tag, network, vlan } => {
                let nic = new_nic(mac, ip, &nic_tag, network, vlan)?;
                return Ok(prints(format!("{}\n", verbs.add_nic(&vm, &nic).await?)));
            }
            VmVerb::RemoveNic { vm, mac } => verbs.remove_nic(&vm, &mac).await?,
            VmVerb::SetTag { vm, key, value, .. } => {
                let (set, remove) = change_of(key, value);
                verbs.set_map(&vm, ConfigMap::Tags, set, remove).await?;
            }
            VmVerb::SetMetadata { vm, key, value, internal, .. } => {
                let map = if internal {
                    ConfigMap::InternalMetadata
                } else {
                    ConfigMap::CustomerMetadata
                };
                let (set, remove) = change_of(key, value);
                verbs.set_map(&vm, map, set, remove).await?;
            }
            VmVerb::Hide { vm } => verbs.hide(&vm, true).await?,
            VmVerb::Show { vm } => verbs.hide(&vm, false).await?,
            VmVerb::RestartInit { vm } => verbs.restart_init(&vm).await?,
            VmVerb::Get { vm } => return get(verbs, &vm).await.map(prints),
            VmVerb::List { json } => return list(verbs.node(), json).map(prints),
        }
        Ok(Said::default())
    }
}

/// `vmadm validate`: all that it says is on standard error.
fn validate(
    node: &Node,
    action: &str,
    brand: Option<&str>,
    file: Option<&Path>,
) -> Result<Ended, NodeError> {
    if Action::of(action) == Action::Update && brand.is_none() {
        let usage =
            "usage: vmadm validate create [-f FILE]\n       vmadm validate update BRAND [-f FILE]";
        return Ok(Err(Failed(2, usage.to_owned())));
    }
    let text = match file {
        Some(file) if !file.exists() => {
            return Ok(Err(Failed(1, format!("File: {} does not exist.", file.display()))));
        }
        Some(file) => std::fs::read_to_string(file).map_err(|e| NodeError::io("read", file, e))?,
        None => std::io::read_to_string(std::io::stdin())
            .map_err(|e| NodeError::io("read", Path::new("-"), e))?,
    };
    let payload: Payload = match serde_json::from_str(&text) {
        Ok(payload) => payload,
        Err(why) => return Ok(Err(Failed(1, format!("Invalid JSON payload: {why}")))),
    };
    let (said, status) = judge::command(action, brand, &payload, &node.around(&payload)?);
    Ok(Err(Failed(status, said.trim_end().to_owned())))
}

/// A value given by hand: JSON where it is JSON, else the text itself.
fn value_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

fn change_of(key: String, value: Option<String>) -> (Payload, Vec<String>) {
    match value {
        Some(value) => (Payload::from_iter([(key, value_of(&value))]), Vec::new()),
        None => (Payload::new(), vec![key]),
    }
}

fn new_nic(
    mac: Option<String>,
    ip: Option<std::net::Ipv4Addr>,
    nic_tag: &str,
    network: Option<String>,
    vlan: Option<u16>,
) -> Result<Payload, NodeError> {
    let mut nic = Payload::from_iter([("nic_tag".to_string(), json!(nic_tag))]);
    if let Some(mac) = mac {
        nic.insert("mac".to_string(), json!(mac));
    }
    if let Some(ip) = ip {
        nic.insert("ip".to_string(), json!(ip.to_string()));
        nic.insert("ips".to_string(), json!([format!("{ip}/24")]));
        nic.insert("netmask".to_string(), json!("255.255.255.0"));
    }
    if let Some(network) = network {
        if uuid::Uuid::try_parse(&network).is_err() {
            return Err(NodeError::invalid("network", format!("'{network}' is no UUID")));
        }
        nic.insert("network_uuid".to_string(), json!(network));
    }
    if let Some(vlan) = vlan {
        nic.insert("vlan_id".to_string(), json!(vlan));
    }
    Ok(nic)
}

fn pretty(node: &Node, value: &Value) -> Result<String, NodeError> {
    serde_json::to_string_pretty(value)
        .map(|t| t + "\n")
        .map_err(|e| NodeError::malformed(node.dir(), e))
}

async fn get(verbs: &Verbs, name: &str) -> Result<String, NodeError> {
    let (node, zone) = (verbs.node(), verbs.resolve(name)?);
    if let Some(vm) = verbs.wait().read(&zone.zonename).await? {
        return pretty(node, &Value::Object(vm));
    }
    pretty(node, &summary(node, &zone))
}

/// What the node's own files say of a VM.
fn summary(node: &Node, zone: &Zone) -> Value {
    let config = node.zone_config(&zone.zonename).unwrap_or_default();
    let value = |name: &str| config.value("attr", name);
    let nic = |n: &Element| {
        json!({
            "interface": n.get("physical"), "mac": n.get("mac-addr"), "nic_tag": n.get("global-nic"),
            "ip": n.value("net-attr", "ip"), "network_uuid": n.value("net-attr", "network_uuid"),
        })
    };
    json!({
        "uuid": zone.uuid, "zonename": zone.zonename, "brand": zone.brand,
        "zone_state": zone.state.as_str(), "zoneid": zone.zoneid, "zonepath": zone.zonepath,
        "alias": config::alias(&config), "owner_uuid": value("owner-uuid"), "image_uuid": value("dataset-uuid"),
        "do_not_inventory": value("do-not-inventory") == Some("true"),
        "nics": config.all("network").map(nic).collect::<Vec<_>>(),
    })
}

fn list(node: &Node, as_json: bool) -> Result<String, NodeError> {
    let zones = node.zones()?;
    if as_json {
        let all: Vec<Value> = zones.listed(true).into_iter().map(|z| summary(node, z)).collect();
        return pretty(node, &json!(all));
    }
    let mut text = String::new();
    for zone in zones.listed(true) {
        let alias = node
            .zone_config(&zone.zonename)
            .ok()
            .and_then(|x| config::alias(&x))
            .unwrap_or_default();
        text.push_str(&format!(
            "{}  {:<14}  {:<13}  {alias}\n",
            zone.zonename,
            zone.brand,
            zone.state.as_str()
        ));
    }
    Ok(text)
}

/// `testbed cn show`.
pub(crate) fn node(node: &Node) -> Result<String, NodeError> {
    let zones = node.zones()?;
    let vms: Vec<Value> = zones
        .listed(true)
        .iter()
        .map(|z| json!({"uuid": z.uuid, "brand": z.brand, "zone_state": z.state.as_str(), "zoneid": z.zoneid}))
        .collect();
    let all = json!({
        "dir": node.dir(), "info": node.info(), "vms": vms,
        "datasets": node.datasets()?.sorted().len(),
        "sysevent_followers": sysevent::followers(&node.run_dir()),
    });
    serde_json::to_string_pretty(&all)
        .map(|t| t + "\n")
        .map_err(|e| NodeError::malformed(node.dir(), e))
}

/// The payload of `vm create`: a file, stdin, or a generated one of the given brand.
fn read_payload(
    file: Option<&PathBuf>,
    brand: Option<&str>,
    seed: Option<u64>,
) -> Result<Payload, NodeError> {
    let Some(file) = file else {
        return sample::fresh(brand.unwrap_or("joyent-minimal"), seed);
    };
    let mut text = String::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().read_to_string(&mut text),
        false => std::fs::File::open(file).and_then(|mut f| f.read_to_string(&mut text)),
    };
    read.map_err(|e| NodeError::io("read", file, e))?;
    match serde_json::from_str(&text).map_err(|e| NodeError::malformed(file, e))? {
        Value::Object(map) => Ok(map),
        _ => Err(NodeError::malformed(file, "expected a JSON object")),
    }
}

/// The wait status that `--status` means.
fn wait_status(given: Option<i64>) -> i64 {
    given.unwrap_or(zones::CLEAN_EXIT)
}
