// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `kvmd ping|status|watch`: what the daemon says, for people or as JSON.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use daemon::exit;
use futures_util::StreamExt;
use sdc_clients::Error;
use sdc_clients::http::{Call, Http};
use sdc_clients::vminfod::Lines;
use serde_json::Value;

use super::{Ask, Command, NAME};

/// A stream that broke is asked for again after this.
const AGAIN: Duration = Duration::from_secs(1);
/// Longest line of a stream; `ready` holds all verdicts.
const LINE_CAP: usize = 64 << 20;

/// Runs one of the clients.
pub async fn run(command: Command) -> ExitCode {
    let result = match command {
        Command::Ping(ask) => ping(&ask).await,
        Command::Status(ask) => status(&ask).await,
        Command::Watch(ask) => watch(&ask).await,
        _ => return ExitCode::from(exit::USAGE),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(NAME, &error, exit::FAILED),
    }
}

fn client(ask: &Ask) -> Result<Http, Error> {
    let agent = concat!("kvmd/", env!("CARGO_PKG_VERSION"));
    Ok(Http::new(&ask.url, agent)?.without_retries())
}

async fn get(ask: &Ask, path: &'static str) -> Result<Value, Error> {
    Ok(Value::Object(client(ask)?.execute(Call::get(&[path])).await?.object()?))
}

async fn ping(ask: &Ask) -> Result<(), Error> {
    let pong = get(ask, "ping").await?;
    if ask.json {
        print_line(&pong.to_string());
    }
    Ok(())
}

async fn status(ask: &Ask) -> Result<(), Error> {
    let status = get(ask, "status").await?;
    if ask.json {
        print_line(&serde_json::to_string_pretty(&status).unwrap_or_default());
        return Ok(());
    }
    let head = format!("{:<24} {:<9} {:<10} SINCE", "INSTANCE", "STATE", "QEMU");
    if !print_line(&head) {
        return Ok(());
    }
    for (name, instance) in status["instances"].as_object().into_iter().flatten() {
        let qemu = instance["qemu"].as_str().unwrap_or("-");
        let lost = if instance["reachable"] == Value::Bool(false) { " (unreachable)" } else { "" };
        print_line(&format!(
            "{:<24} {:<9} {:<10} {}{lost}",
            safe(name),
            text(&instance["state"]),
            safe(qemu),
            text(&instance["since"])
        ));
    }
    for verdict in status["verdicts"].as_array().into_iter().flatten() {
        print_line(&sentence(verdict));
    }
    Ok(())
}

/// One line per verdict for ever; a daemon that is gone is waited for, nothing is told twice.
async fn watch(ask: &Ask) -> Result<(), Error> {
    let http = client(ask)?;
    // The first time, a daemon that is not there is an error to see.
    http.execute(Call::get(&["ping"])).await?;
    let mut position: Option<(String, u64)> = None;
    loop {
        let mut call = Call::get(&["events"]);
        if let Some((epoch, seq)) = &position {
            call = call.query("epoch", epoch).query("since", seq.to_string());
        }
        match follow(&http, call, ask.json, &mut position).await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => {
                eprintln!("{NAME}: stream lost, connecting again: {error}");
                // The ring has gone on without us, or the daemon is another one: begin anew.
                if error.status() == Some(410) {
                    position = None;
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Prints a stream to its end; `true`: nobody reads any more.
async fn follow(
    http: &Http,
    call: Call,
    json: bool,
    position: &mut Option<(String, u64)>,
) -> Result<bool, Error> {
    let mut body = http.open(call).await?.body;
    let mut lines = Lines::new(LINE_CAP);
    while let Some(piece) = body.next().await {
        lines.push(&piece?);
        while let Ok(Some(line)) = lines.next_line() {
            let Ok(event) = serde_json::from_slice::<Value>(&line) else { continue };
            if let (Some(epoch), Some(seq)) = (event["epoch"].as_str(), event["seq"].as_u64()) {
                *position = Some((epoch.to_owned(), seq));
            }
            let shown = if json {
                print_line(&String::from_utf8_lossy(&line))
            } else if event["type"] == "verdict" {
                print_line(&sentence(&event))
            } else {
                true
            };
            if !shown {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn sentence(verdict: &Value) -> String {
    let evidence: Vec<&str> =
        verdict["evidence"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    format!(
        "{}  {}  {}/{} ({}){}  {}",
        text(&verdict["date"]),
        text(&verdict["name"]),
        text(&verdict["initiator"]),
        text(&verdict["kind"]),
        text(&verdict["confidence"]),
        if verdict["user"] == Value::Bool(true) { "  user" } else { "" },
        safe(&evidence.join(", ")),
    )
}

fn text(value: &Value) -> String {
    safe(value.as_str().unwrap_or("-"))
}

/// A guest's words must not move a terminal's cursor.
fn safe(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// `false`: nobody reads any more.
fn print_line(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).is_ok()
}
