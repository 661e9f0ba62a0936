// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! An agent on the hub: logs how long each VM took to boot, and each that went down.
//! `docs/agents.md` walks through it.
//!
//! `boot-times [URL]`; the URL is vminfod's.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::pin::pin;
use std::process::ExitCode;

use daemon::{Shutdown, exit};
use futures_util::StreamExt as _;
use sdc_clients::Jitter;
use sdc_clients::vminfod::{Vm, VmFields as _, Vminfod, WatchEvent, watch};
use tokio::time::Instant;

const NAME: &str = "boot-times";

#[tokio::main]
async fn main() -> ExitCode {
    daemon::log::init(NAME, "info");
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:9090".to_owned());
    let vminfod = match Vminfod::new(&url, concat!("boot-times/", env!("CARGO_PKG_VERSION"))) {
        Ok(vminfod) => vminfod,
        Err(error) => return exit::report(NAME, &error, exit::USAGE),
    };
    let shutdown = Shutdown::new();
    if let Err(error) = shutdown.on_signals() {
        return exit::report(NAME, &error, exit::FAILED);
    }
    let events = watch(&vminfod, Jitter::from_entropy()).into_stream();
    let mut events = pin!(events.take_until(shutdown.wait()));
    let mut booting = HashMap::new();
    while let Some(event) = events.next().await {
        match event {
            WatchEvent::Modified { vm, old, .. } if vm.zone_state() != old.zone_state() => {
                changed(&mut booting, &vm);
            }
            WatchEvent::Deleted(vm) => drop(booting.remove(&vm.incarnation())),
            WatchEvent::Synced(vms) => tracing::info!(vms = vms.len(), "in step with the node"),
            WatchEvent::Lost(error) => tracing::warn!(%error, "lost vminfod; connecting again"),
            _ => {}
        }
    }
    ExitCode::SUCCESS
}

fn changed(booting: &mut HashMap<u64, Instant>, vm: &Vm) {
    let (uuid, alias) = (vm.uuid(), vm.alias());
    match vm.zone_state() {
        Some("running") => {
            let began = booting.remove(&vm.incarnation());
            let took_ms = began.map(|began| began.elapsed().as_millis() as u64);
            tracing::info!(uuid, alias, took_ms, "running");
        }
        Some("installed") => tracing::info!(uuid, alias, "down"),
        _ => drop(booting.entry(vm.incarnation()).or_insert_with(Instant::now)),
    }
}
