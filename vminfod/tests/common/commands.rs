// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the fake node's commands answer, from its memory.

use daemon::command::{Call, CommandError, Commands, Launch, Output, Pipes, Program, Run, Running};
use serde_json::{Map, Value};
use simnode::recorded::{COLUMNS, Listings};
use tokio::io::duplex;

use super::FakeNode;

impl FakeNode {
    /// What the tool prints of the whole listing for these arguments.
    fn listing(&self, tool: Program, args: &[String]) -> Output {
        // A listing of the whole node is two deep.
        let is_of_one = args.iter().skip_while(|arg| *arg != "-d").nth(2).is_some();
        let depth =
            |row: &Map<String, Value>| row["name"].as_str().unwrap().matches(['/', '@']).count();
        let listing = self.with(|state| match tool {
            Program::Zoneadm => state.zoneadm.join("\n") + "\n",
            Program::Zfs => {
                state.zfs.iter().filter(|row| is_of_one || depth(row) <= 2).map(row_line).collect()
            }
            _ => Value::Array(state.zoneinfo.clone()).to_string(),
        });
        let listings = Listings::default();
        listings.put(tool, output(0, listing, ""));
        listings.answer(tool, args)
    }
}

impl Commands for FakeNode {
    fn run(&self, call: Call) -> Run<'_> {
        let Call { program: tool, args, deadline, .. } = call;
        let name = tool.name();
        let hangs = self.with(|state| {
            state.log.push((tool, args.clone()));
            let on = |(tool, text): &(&'static str, String)| {
                *tool == name && args.iter().any(|arg| arg.contains(text))
            };
            state.hanging.contains(&name) || state.hanging_on.iter().any(on)
        });
        Box::pin(async move {
            if hangs {
                tokio::time::sleep(deadline).await;
                return Err(CommandError::Deadline { program: tool, after: deadline });
            }
            loop {
                let released = self.released.notified();
                if !self.with(|state| state.held.contains(&name)) {
                    break;
                }
                released.await;
            }
            if let Some(complaint) = self.with(|state| state.failing.get(name).cloned()) {
                return Ok(output(2, String::new(), &complaint));
            }
            Ok(self.listing(tool, &args))
        })
    }

    fn start(&self, launch: Launch) -> Result<Running, CommandError> {
        let Launch { program, args, pipes } = launch;
        if pipes == Pipes::Both {
            self.with(|state| state.log.push((program, args)));
            if self.with(|state| state.is_deaf) {
                return Ok(simnode::fswatcher::Told::default().converse());
            }
            return simnode::fswatcher::in_thread()
                .map_err(|error| CommandError::Io { program, error: error.into() });
        }
        let (near, far) = duplex(1 << 20);
        let (errors, _) = duplex(1);
        let stream = if args.iter().any(|arg| arg == "-c") { "zones" } else { "zfs" };
        self.with(|state| {
            state.log.push((program, args));
            state.streams.insert(stream, far);
        });
        let ready =
            tokio::io::AsyncReadExt::chain(&b"{\"date\":\"d\",\"type\":\"ready\"}\n"[..], near);
        Ok(Running::new(Box::new(ready), Box::new(errors), Box::pin(std::future::pending())))
    }
}

fn row_line(row: &Map<String, Value>) -> String {
    let cells = COLUMNS.split(',').map(|key| row.get(key).and_then(Value::as_str).unwrap_or("-"));
    cells.collect::<Vec<_>>().join("\t") + "\n"
}

fn output(status: i32, stdout: String, stderr: &str) -> Output {
    Output { status, stdout: stdout.into_bytes(), stderr: stderr.as_bytes().to_vec() }
}
