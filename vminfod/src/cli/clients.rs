// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `vminfod ping|status|vms|vm|events`: what the daemon says, as JSON.

use std::io::Write;
use std::process::ExitCode;

use daemon::exit;
use sdc_clients::http::Call;
use sdc_clients::vminfod::{Vminfod, WatchEvent, watch};
use sdc_clients::{Error, Jitter};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Command, NAME};

/// Runs one of the clients.
pub async fn run(command: Command) -> ExitCode {
    let result = match command {
        Command::Serve(_) => return ExitCode::from(exit::USAGE),
        Command::Ping(url) => ping(&url.url).await,
        Command::Status { url, full } => status(&url.url, full).await,
        Command::Vms { url, sync } => vms(&url.url, sync).await,
        Command::Vm { name, url, sync } => vm(&url.url, &name, sync).await,
        Command::Events(url) => events(&url.url).await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(NAME, &error, exit::FAILED),
    }
}

async fn ping(url: &str) -> Result<(), Error> {
    Vminfod::new(url)?.ping().await?;
    print(&json!({"ping": "pong"}));
    Ok(())
}

async fn status(url: &str, full: bool) -> Result<(), Error> {
    let client = Vminfod::new(url)?;
    let value = if full {
        let call = Call::get(&["status"]).query("full", "true");
        Value::Object(client.get(call).await?.object()?)
    } else {
        client.status().await?
    };
    print(&value);
    Ok(())
}

async fn vms(url: &str, sync: bool) -> Result<(), Error> {
    print(&Vminfod::new(url)?.vms(sync).await?);
    Ok(())
}

async fn vm(url: &str, name: &str, sync: bool) -> Result<(), Error> {
    print(&Vminfod::new(url)?.vm(name, sync).await?);
    Ok(())
}

/// One line per event for ever, whatever happens to the daemon.
async fn events(url: &str) -> Result<(), Error> {
    let client = Vminfod::new(url)?;
    client.ping().await?;
    let mut watcher = watch(&client, Jitter::from_entropy());
    loop {
        let line = match watcher.next().await {
            WatchEvent::Synced(vms) => {
                let vms: Vec<_> = vms.iter().map(|vm| Value::Object((**vm).clone())).collect();
                json!({"type": "ready", "vms": vms})
            }
            WatchEvent::Created(vm) => json!({"type": "create", "vm": *vm}),
            WatchEvent::Modified { vm, changes, .. } => {
                json!({"type": "modify", "vm": *vm, "changes": changes})
            }
            WatchEvent::Deleted { vm } => json!({"type": "delete", "vm": *vm}),
            WatchEvent::Hidden { vm } => json!({"type": "hidden", "vm": *vm}),
            WatchEvent::Shown { vm } => json!({"type": "shown", "vm": *vm}),
            WatchEvent::Lost(error) => {
                eprintln!("{NAME}: stream lost, connecting again: {error}");
                continue;
            }
        };
        if !print_line(&line.to_string()) {
            return Ok(());
        }
    }
}

fn print(value: &impl Serialize) {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    let _reader_went_away = print_line(&text);
}

/// `false`: nobody reads any more.
fn print_line(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).is_ok()
}
