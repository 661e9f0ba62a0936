// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node loses its power and boots as its platform does it: the zones with autoboot, and the programs whose
//! manifests a boot imports.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use simnode::life::platform::VMINFOD;
use simnode::life::ramdisk::SITE;

use super::centre::Centre;
use super::node::Cn;

/// The agents of a node: the name, the service, and the manifest as it is shipped.
const AGENTS: [(&str, &str, &str); 2] = [
    ("net-agent", "smartdc/agent/net-agent", include_str!("../../../../deploy/smf/net-agent.xml")),
    ("vm-agent", "smartdc/agent/vm-agent", include_str!("../../../../deploy/smf/vm-agent.xml")),
];

/// The power goes and comes back within ten minutes. In some worlds no boot imports an agent, which stays away until
/// somebody starts it.
pub(super) async fn reboots(centre: &Centre, cn: &mut Cn, rng: &mut StdRng) -> anyhow::Result<()> {
    let forgotten = AGENTS.get(rng.random_range(0..6_usize)).map(|it| it.0);
    for (name, _, manifest) in AGENTS.iter().filter(|it| forgotten != Some(it.0)) {
        cn.node.put(&format!("{SITE}/{name}.xml"), manifest.as_bytes(), 0o444)?;
    }
    centre.truth.note(format!("the power of {} is gone; forgotten: {forgotten:?}", cn.uuid));
    cn.end_vminfod().await;
    // The last write of an agent may not have got to the disk.
    cn.net.kill(rng.random()).await?;
    cn.vms.kill(rng.random()).await?;
    cn.node.lose_power()?;
    tokio::time::sleep(Duration::from_secs(rng.random_range(30..600))).await;

    let mut boot = cn.node.begin_boot()?;
    // A new start has to get by with commands that fail, but not for ever.
    cn.commands.calm();
    while let Some(start) = cn.node.next_start(&mut boot)? {
        match start.service.as_str() {
            VMINFOD => cn.start_vminfod().await?,
            service if service == AGENTS[0].1 => cn.start_agent()?,
            service if service == AGENTS[1].1 => cn.start_vm_agent()?,
            _ => {}
        }
        cn.node.ended(&start, true)?;
    }
    centre.truth.note(format!("it has booted {:?} and started {:?}", boot.zones, boot.started));
    cn.watch.poll(&cn.node.root(), &cn.way);
    if let Some(name) = forgotten {
        tokio::time::sleep(Duration::from_secs(rng.random_range(60..7_200))).await;
        centre.truth.note(format!("somebody starts {name}"));
        match name {
            "net-agent" => cn.start_agent()?,
            _ => cn.start_vm_agent()?,
        }
    }
    Ok(())
}
