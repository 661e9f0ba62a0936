// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! migration-service moves the VM of a run again, in process, between two simulated nodes with their agents.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use migration_core::intent::End;
use migration_core::time::Time;
use sdc_clients::migrations::Options;
use serde_json::{Map, Value, json};
use tokio::time::{sleep, timeout};

use super::player::{Call, Player};
use crate::explore::among::Among;
use crate::explore::names::uuid;
use crate::moving::subject::VM;
use crate::place::place;

/// Longer than any of the runs.
const PATIENCE: Duration = Duration::from_secs(1800);
const PEERS: [&str; 5] = ["vmapi", "cnapi", "napi", "imgapi", "papi"];

/// What ours have in the place of what the run names.
pub(super) fn names(calls: &[Call]) -> anyhow::Result<Vec<(String, String)>> {
    let vm = calls.iter().find(|call| call.peer == "vmapi").context("VMAPI is asked")?;
    let vm = vm.exchange.response.body.clone().unwrap_or_default();
    let text = |name: &str| vm[name].as_str().unwrap_or_default().to_owned();
    let target = creation(calls)?.exchange.request.path.split('/').nth(2).unwrap_or_default();
    let source = (text("server_uuid"), uuid(End::Source).to_string());
    let target = (target.to_owned(), uuid(End::Target).to_string());
    Ok(vec![(text("uuid"), VM.to_owned()), source, target])
}

/// The order to create the target.
fn creation(calls: &[Call]) -> anyhow::Result<&Call> {
    let is_it = |call: &&Call| {
        let asked = &call.exchange.request;
        asked.method == "POST" && asked.path.ends_with("/vms")
    };
    calls.iter().find(is_it).context("a target is created")
}

/// The VM as it was created: the target is, but for what makes it one.
fn subject(player: &Player, calls: &[Call]) -> anyhow::Result<Map<String, Value>> {
    let body = creation(calls)?.exchange.request.body.clone().unwrap_or_default();
    let mut vm = player.ours(&body).as_object().cloned().unwrap_or_default();
    for name in ["do_not_inventory", "vm_migration_target", "image"] {
        vm.shift_remove(name);
    }
    vm.insert("autoboot".to_owned(), json!(true));
    Ok(vm)
}

/// Does what the operator did, until all that the run has is asked.
pub(super) async fn again(
    player: &Player,
    calls: &[Call],
    at: jiff::Timestamp,
    actions: &[&str],
) -> anyhow::Result<()> {
    let (dir, vm) = (place()?, subject(player, calls)?);
    let among = Among::new(dir.path(), Time::from_millis(at.as_millisecond()), &vm).await?;
    let verbs = among.verbs();
    let on_create = move |body: Value| {
        let verbs = verbs.clone();
        async move {
            let body = body.as_object().cloned().unwrap_or_default();
            drop(verbs.create(&body).await);
        }
    };
    player.creates(Arc::new(move |body| Box::pin(on_create(body))));
    player.is_cut();
    among.start(PEERS.map(|peer| (peer, player.peer(peer))).into()).await?;
    let done = timeout(PATIENCE, act(player, &among, actions)).await;
    among.end().await;
    player.forget();
    done.context("it takes too long")?
}

async fn act(player: &Player, among: &Among, actions: &[&str]) -> anyhow::Result<()> {
    let client = among.migrations()?;
    for action in actions {
        client.act(VM, action, &Options::default()).await.with_context(|| (*action).to_owned())?;
        loop {
            sleep(Duration::from_secs(1)).await;
            if player.is_changed() {
                break; // the recorder went no further
            }
            let record = client.get(VM).await?;
            match record.state.as_str() {
                "paused" | "successful" => break,
                "failed" | "aborted" => bail!("{action}: {} {:?}", record.state, record.error),
                _ => {}
            }
        }
    }
    Ok(())
}
