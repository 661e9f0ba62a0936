// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The helpers that run: sysevent, fswatcher.

use std::time::Duration;

use daemon::command::{Commands, Launch, Pipes, Program};
use daemon::text::counted;
use sdc_clients::vminfod::Lines;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};
use vm_model::parse::sysevent::{self, Line};

use super::finding::Finding;
use super::programs::Programs;
use crate::place::Place;

/// How long a helper may take to say that it is ready.
const READY: Duration = Duration::from_secs(30);
/// The longest line that is read.
const LINE: usize = 10 << 20;

/// The two channels of sysevents: how each is asked for.
const CHANNELS: [(&str, &[&str]); 2] = [
    ("B12", &["-rj", "-c", "com.sun:zones:status"]),
    ("B13", &["-rj", "EC_zfs", "ESC_ZFS_history_event"]),
];

/// Starts the sysevent helper for both channels, and reads its lines for as long as `watch`.
pub(super) async fn events(programs: &Programs, watch: Duration) -> Vec<Finding> {
    let [(zones, of_zones), (datasets, of_datasets)] = CHANNELS;
    let (zones, datasets) = tokio::join!(
        channel(programs, zones, of_zones, watch),
        channel(programs, datasets, of_datasets, watch)
    );
    vec![zones, datasets]
}

async fn channel(
    programs: &Programs,
    belief: &'static str,
    args: &[&str],
    watch: Duration,
) -> Finding {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    let mut running = match programs.0.start(Launch::new(Program::Sysevent, args, Pipes::Out)) {
        Ok(running) => running,
        Err(error) => return Finding::fails(belief, error.to_string()),
    };
    let began = Instant::now();
    let (mut lines, mut chunk) = (Lines::new(LINE), vec![0; 64 << 10]);
    let (mut is_ready, mut events, mut bad) = (false, 0_u32, 0_u32);
    loop {
        let until = began + if is_ready { watch } else { READY.max(watch) };
        let count = match timeout_at(until, running.stdout.read(&mut chunk)).await {
            Err(_over) => break,
            Ok(Ok(0)) | Ok(Err(_)) => return Finding::fails(belief, "sysevent ended by itself"),
            Ok(Ok(count)) => count,
        };
        lines.push(&chunk[..count]);
        loop {
            match lines.next_line() {
                Err(_) => return Finding::fails(belief, "sysevent prints lines without an end"),
                Ok(None) => break,
                Ok(Some(line)) => match sysevent::parse(&line) {
                    Ok(Line::Ready) => is_ready = true,
                    Ok(_) => events += 1,
                    Err(_) => bad += 1,
                },
            }
        }
    }
    let seen = format!("{} in {} s", counted(events, "event", "events"), watch.as_secs());
    match (is_ready, bad) {
        (false, _) => Finding::fails(belief, "sysevent never said that it is ready"),
        (true, 0) => Finding::holds(belief, seen),
        (true, bad) => Finding::fails(
            belief,
            format!("{} not understood; {seen}", counted(bad, "line is", "lines are")),
        ),
    }
}

/// Asks the fswatcher helper to watch the index of the zones.
pub(super) async fn files(place: &Place, programs: &Programs) -> Finding {
    let args = ["-r", "-j"].map(String::from).to_vec();
    let mut running = match programs.0.start(Launch::new(Program::Fswatcher, args, Pipes::Both)) {
        Ok(running) => running,
        Err(error) => return Finding::fails("B14", error.to_string()),
    };
    let until = Instant::now() + READY;
    let (mut lines, mut chunk) = (Lines::new(LINE), vec![0; 64 << 10]);
    let request = format!("7 WATCH {}\n", place.file("/etc/zones").display());
    let mut is_ready = false;
    loop {
        let count = match timeout_at(until, running.stdout.read(&mut chunk)).await {
            Ok(Ok(count)) if count > 0 => count,
            Err(_) if is_ready => {
                return Finding::fails("B14", "fswatcher did not answer a request");
            }
            Err(_) => return Finding::fails("B14", "fswatcher never said that it is ready"),
            _ => return Finding::fails("B14", "fswatcher ended by itself"),
        };
        lines.push(&chunk[..count]);
        while let Ok(Some(line)) = lines.next_line() {
            let Ok(line) = serde_json::from_slice::<Value>(&line) else {
                return Finding::fails("B14", "a line of fswatcher is no JSON");
            };
            match line.get("type").and_then(Value::as_str) {
                Some("ready") => {
                    is_ready = true;
                    if running.stdin.write_all(request.as_bytes()).await.is_err() {
                        return Finding::fails("B14", "fswatcher reads no requests");
                    }
                }
                Some("response") if line.get("result") == Some(&Value::from("SUCCESS")) => {
                    return Finding::holds("B14", "a directory is watched");
                }
                Some("response") => {
                    return Finding::fails("B14", "fswatcher cannot watch /etc/zones");
                }
                _ => {}
            }
        }
    }
}
