// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The verbs of `testbed vm` and what they print.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Value, json};

use super::{Node, NodeError, Verbs, cli, payload};

/// `testbed vm VERB`.
#[derive(Subcommand)]
pub(super) enum VmVerb {
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
    /// Start a VM
    Boot { vm: String },
    /// Stop a VM
    Halt {
        vm: String,
        /// Wait status of init
        #[arg(long, allow_negative_numbers = true)]
        status: Option<i64>,
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
    /// List the VMs
    List,
}

impl VmVerb {
    /// Does it and returns what is printed.
    pub(super) async fn run(self, verbs: &Verbs) -> Result<String, NodeError> {
        match self {
            VmVerb::Create { file, brand, seed } => {
                let vm = cli::read_payload(file.as_ref(), brand.as_deref(), seed)?;
                return Ok(format!("{}\n", verbs.create(&vm).await?));
            }
            VmVerb::Boot { vm } => verbs.boot(&vm).await?,
            VmVerb::Halt { vm, status } => verbs.halt(&vm, cli::status(status)).await?,
            VmVerb::Reboot { vm } => verbs.reboot(&vm).await?,
            VmVerb::Delete { vm, raw: false } => verbs.delete(&vm).await?,
            VmVerb::Delete { vm, raw: true } => verbs.delete_raw(&vm).await?,
            VmVerb::SetQuota { vm, gib } => verbs.set_quota(&vm, gib).await?,
            VmVerb::List => return list(verbs.node()),
        }
        Ok(String::new())
    }
}

fn list(node: &Node) -> Result<String, NodeError> {
    let zones = node.zones()?;
    let mut text = String::new();
    for zone in zones.listed(true) {
        let alias = node
            .zone_config(&zone.zonename)
            .ok()
            .and_then(|x| payload::alias(&x))
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
pub(super) fn node(node: &Node) -> Result<String, NodeError> {
    let zones = node.zones()?;
    let vms: Vec<Value> = zones
        .listed(true)
        .iter()
        .map(|z| json!({"uuid": z.uuid, "brand": z.brand, "zone_state": z.state.as_str(), "zoneid": z.zoneid}))
        .collect();
    let all = json!({
        "dir": node.dir(), "info": node.info(), "vms": vms,
        "datasets": node.datasets()?.sorted().len(),
        "sysevent_followers": super::sysevent::followers(&node.run_dir()),
    });
    serde_json::to_string_pretty(&all)
        .map(|t| t + "\n")
        .map_err(|e| NodeError::malformed(node.dir(), e))
}
