// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `vminfod events`: prints every change as one line. It reconnects when the daemon is restarted and
//! reports on stderr whether events were missed.

use std::time::Duration;

use daemon::cli::screen::{self, Screen};
use sdc_clients::Jitter;
use serde_json::Value;

use super::args::{EventsArgs, NAME};
use super::show::{daemon, name_of};
use super::stream::{self, StreamEnd};
use super::supply::SupplyError;
use super::vmadm::events::{EventFault, Printer, Program};

/// Pause before reconnecting.
const PAUSE: Duration = Duration::from_secs(1);

/// How the first line of a resumed stream begins.
const RESUME: &[u8] = br#"{"type":"resume""#;
/// Why a stream does not go on where it broke.
const MISSED: &str = "the daemon was restarted, or keeps them no longer";

/// The last event that was printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Place {
    epoch: String,
    seq: u64,
}

impl Place {
    /// Reads epoch and number from a line, if it has them.
    fn take(&mut self, line: &[u8]) {
        let Ok(Value::Object(event)) = vm_model::js::parse(line) else { return };
        if let Some(epoch) = event.get("epoch").and_then(Value::as_str) {
            epoch.clone_into(&mut self.epoch);
        }
        if let Some(seq) = event.get("seq").and_then(Value::as_u64) {
            self.seq = seq;
        }
    }
}

/// Runs until stdout is closed or the first connection fails.
pub async fn run(args: &EventsArgs, screen: Screen) -> anyhow::Result<()> {
    let daemon = daemon(&args.reach)?;
    let only = match &args.uuid {
        Some(typed) => Some(name_of(&daemon, typed).await?),
        None => None,
    };
    let mut printer = Printer {
        tool: Program::Vminfod,
        full: !args.short,
        json: args.json,
        ready: args.ready,
        only,
    };
    let mut place = Place::default();
    let mut jitter = Jitter::from_entropy();
    let mut began = false;
    loop {
        let mut call = stream::events();
        if !place.epoch.is_empty() {
            call = call.query("epoch", &place.epoch).query("since", place.seq);
        }
        let mut connected = false;
        let mut show = |line: &[u8]| {
            connected = true;
            let resumed = !place.epoch.is_empty();
            place.take(line);
            // The first line of a resumed stream reports no change.
            if resumed && line.starts_with(RESUME) {
                return Ok(());
            }
            Ok(screen::write(&screen.harmless(&printer.line(line)?))?)
        };
        let Err(end) = stream::follow(&daemon, call, &mut show).await;
        began |= connected;
        match &end {
            end if end.is_closed_stdout() => return Ok(()),
            StreamEnd::Write(_) | StreamEnd::Fault(EventFault::NoSuchVm(_)) => {
                return Err(end.into());
            }
            // The VM does not exist, or the daemon never answered.
            _ if !began => return Err(end.into()),
            StreamEnd::Supply(SupplyError::Status(410)) => {
                eprintln!("{NAME}: some events were missed: {MISSED}");
                place = Place::default();
                // The new first line reports a VM that is gone.
                printer.ready = args.ready;
                continue;
            }
            _ if connected => eprintln!("{NAME}: {end}: connecting again"),
            _ => {}
        }
        tokio::time::sleep(jitter.around(PAUSE, 0.2)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let mut place = Place::default();
        place.take(br#"{"type":"ready","vms":"[]","seq":4,"epoch":"ab"}"#);
        place.take(br#"{"type":"delete","zonename":"a","seq":5,"epoch":"ab"}"#);
        place.take(b"nonsense");
        assert_eq!(place, Place { epoch: "ab".to_owned(), seq: 5 });
        assert!(br#"{"type":"resume","date":"x"}"#.starts_with(RESUME));
    }
}
