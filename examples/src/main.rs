// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! An agent on the hub: logs how long each VM took from `booting` to `running`, and each that
//! went down. `docs/agents.md` walks through it.
//!
//! `boot-times [URL]`; the URL is vminfod's.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::process::ExitCode;

use daemon::{Shutdown, exit};
use sdc_clients::Jitter;
use sdc_clients::vminfod::{VmObject, Vminfod, WatchEvent, watch};
use tokio::time::Instant;

#[tokio::main]
async fn main() -> ExitCode {
    daemon::log::init("boot-times", "info");
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:9090".to_owned());
    let vminfod = match Vminfod::new(&url) {
        Ok(vminfod) => vminfod,
        Err(error) => return exit::report("boot-times", &error, exit::USAGE),
    };
    let shutdown = Shutdown::new();
    if let Err(error) = shutdown.on_signals() {
        return exit::report("boot-times", &error, exit::FAILED);
    }
    let mut watcher = watch(&vminfod, Jitter::from_entropy());
    let mut booting = HashMap::new();
    loop {
        // Cancel-safe: an event not taken here is taken by the next call.
        let event = tokio::select! {
            event = watcher.next() => event,
            () = shutdown.wait() => return ExitCode::SUCCESS,
        };
        match event {
            WatchEvent::Modified { vm, old, .. } => changed(&mut booting, &old, &vm),
            WatchEvent::Deleted { vm } => drop(booting.remove(text(&vm, "zonename"))),
            WatchEvent::Synced(vms) => tracing::info!(vms = vms.len(), "in step with the node"),
            WatchEvent::Lost(error) => tracing::warn!(%error, "lost vminfod; connecting again"),
            _ => {}
        }
    }
}

/// Only a change of `zone_state` matters here; the field's words are those of `zoneadm list -v`.
fn changed(booting: &mut HashMap<String, Instant>, old: &VmObject, vm: &VmObject) {
    let (before, now, zone) =
        (text(old, "zone_state"), text(vm, "zone_state"), text(vm, "zonename"));
    if before == now {
        return;
    }
    match now {
        "running" => {
            let took = booting.remove(zone).map(|began| began.elapsed().as_millis() as u64);
            tracing::info!(zone, alias = text(vm, "alias"), took_ms = took, "running");
        }
        "installed" => tracing::info!(zone, alias = text(vm, "alias"), "down"),
        _ => drop(booting.entry(zone.to_owned()).or_insert_with(Instant::now)),
    }
}

fn text<'a>(vm: &'a VmObject, field: &str) -> &'a str {
    vm.get(field).and_then(|value| value.as_str()).unwrap_or_default()
}
