// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Read-after-write: when a verb has returned, every reader sees its effect.

use anyhow::{Context, ensure};
use sdc_clients::vminfod::VmObject;
use serde_json::{Value, json};

use crate::changes::hub::Hub;
use simnode::sample;

/// Creates, updates and deletes so many VMs through vmadm's verbs; after each the daemon is asked
/// as any client asks, without `sync`.
pub async fn pairs(hub: &Hub, wanted: usize) -> anyhow::Result<()> {
    let (verbs, client) = (hub.verbs()?, hub.client());
    for nth in 0..wanted {
        let mut vm = sample::fresh("joyent-minimal", Some(nth as u64))?;
        vm.insert("alias".to_owned(), json!(format!("pair-{nth}")));
        vm.insert("autoboot".to_owned(), json!(nth % 4 == 0));
        let uuid = verbs.create(&vm).await.with_context(|| format!("create {nth}"))?;
        let now =
            client.vm(&uuid, false).await.with_context(|| format!("get after create {nth}"))?;
        let state = if nth % 4 == 0 { "running" } else { "stopped" };
        expect(&now, "alias", &json!(format!("pair-{nth}")))?;
        expect(&now, "state", &json!(state))?;
        ensure!(!now.contains_key("provisioning"), "{uuid} is shown as being provisioned");

        let (key, value) = match nth % 3 {
            0 => ("quota", json!(11 + nth % 50)),
            1 => ("alias", json!(format!("changed-{nth}"))),
            _ => ("max_lwps", json!(3000 + nth)),
        };
        match value.as_u64().filter(|_| key == "quota") {
            Some(gib) => verbs.set_quota(&uuid, gib).await,
            None => verbs.set_field(&uuid, key, value.clone()).await,
        }
        .with_context(|| format!("update {nth}"))?;
        expect(&client.vm(&uuid, false).await?, key, &value)?;

        verbs.delete(&uuid).await.with_context(|| format!("delete {nth}"))?;
        match client.vm(&uuid, false).await {
            Err(error) if error.status() == Some(404) => {}
            Err(error) => return Err(error).context("get after delete"),
            Ok(_) => anyhow::bail!("{uuid} is shown after its deletion"),
        }
    }
    Ok(())
}

fn expect(vm: &VmObject, key: &str, wanted: &Value) -> anyhow::Result<()> {
    let got = vm.get(key).unwrap_or(&Value::Null);
    ensure!(got == wanted, "a stale answer: {key} is {got} after {wanted} was waited for");
    Ok(())
}
