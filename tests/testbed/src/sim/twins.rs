// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A second machine with the uuid of a node.

use mocks::napi::NewNic;
use serde_json::{Value, json};

use super::centre::Centre;
use super::node::Cn;

/// The admin NIC of the second machine.
const NIC: &str = "0c:c4:7a:ff:ff:01";

/// A second machine with the node's uuid has told CNAPI of itself.
pub(super) fn second_machine(centre: &Centre, cn: &str) -> anyhow::Result<()> {
    centre.truth.note(format!("a second machine is {cn}"));
    centre.truth.doubt(cn, true);
    let links = json!({"ixgbe0": {"MAC Address": NIC, "NIC Names": ["admin"]}});
    put(centre, cn, &json!({"UUID": cn, "Serial Number": "SIM0002", "Network Interfaces": links}));
    centre.napi.add_nic(NewNic::server(NIC, cn)).map_err(anyhow::Error::msg)?;
    Ok(())
}

/// The second machine is no more, and the agents of the node start again.
pub(super) async fn one_machine(centre: &Centre, cn: &mut Cn) -> anyhow::Result<()> {
    if !centre.truth.is_doubted(&cn.uuid) {
        return Ok(());
    }
    put(centre, &cn.uuid, &json!({"UUID": cn.uuid, "Serial Number": "SIM0001"}));
    centre.napi.remove(NIC);
    cn.net.kill(false).await?;
    cn.vms.kill(false).await?;
    centre.truth.doubt(&cn.uuid, false);
    cn.start_agent()?;
    cn.start_vm_agent()
}

/// CNAPI hears this sysinfo of the node.
pub(super) fn put(centre: &Centre, cn: &str, sysinfo: &Value) {
    let server = json!({"uuid": cn, "sysinfo": sysinfo});
    centre.cnapi.put_server(server.as_object().cloned().unwrap_or_default());
}
