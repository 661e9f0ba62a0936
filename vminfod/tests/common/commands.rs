// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the fake node's commands answer, from its memory.

use std::time::Duration;

use serde_json::{Map, Value};
use tokio::io::duplex;
use vminfod::node::commands::{CommandError, Commands, Follow, Input, Output, Run, Tool};

use super::FakeNode;

impl FakeNode {
    fn zoneadm(&self, args: &[String]) -> Output {
        let lines = self.with(|state| state.zoneadm.clone());
        match args {
            [flag, name, ..] if flag == "-z" => {
                match lines.iter().find(|line| line.split(':').nth(1) == Some(name)) {
                    Some(line) => output(0, format!("{line}\n"), ""),
                    None => output(
                        1,
                        String::new(),
                        &format!("zoneadm: zone '{name}': No such zone configured"),
                    ),
                }
            }
            _ => output(0, lines.join("\n") + "\n", ""),
        }
    }

    fn zfs(&self, args: &[String]) -> Output {
        let rows = self.with(|state| state.zfs.clone());
        let after = |flag: &str, nth| args.iter().skip_while(|arg| *arg != flag).nth(nth);
        let (columns, operand) = (after("-o", 1).map_or("name", String::as_str), after("-d", 2));
        let types = after("-t", 1).map_or("filesystem", String::as_str);
        let wanted = |row: &&Map<String, Value>| {
            if !types.split(',').any(|kind| row["type"] == kind) {
                return false;
            }
            let name = row["name"].as_str().unwrap();
            let depth = |name: &str| name.matches(['/', '@']).count();
            match operand {
                None => depth(name) <= 2,
                Some(top) => {
                    let rest = name.strip_prefix(top.as_str());
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']))
                        && depth(name) <= depth(top) + 1
                }
            }
        };
        let text: String = rows.iter().filter(wanted).map(|row| row_line(row, columns)).collect();
        match operand {
            Some(top) if text.is_empty() => {
                output(1, text, &format!("cannot open '{top}': dataset does not exist"))
            }
            _ => output(0, text, ""),
        }
    }
}

impl Commands for FakeNode {
    fn run(&self, tool: Tool, args: Vec<String>, deadline: Duration) -> Run<'_> {
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
                return Err(CommandError::Deadline { tool, after: deadline });
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
            Ok(match tool {
                Tool::Zoneadm => self.zoneadm(&args),
                Tool::Zfs => self.zfs(&args),
                Tool::Kstat => output(
                    0,
                    Value::Array(self.with(|state| state.zoneinfo.clone())).to_string(),
                    "",
                ),
                Tool::Sysevent | Tool::Fswatcher => {
                    output(2, String::new(), "this one is followed")
                }
            })
        })
    }

    fn follow(&self, tool: Tool, args: Vec<String>) -> Result<Follow, CommandError> {
        let (near, far) = duplex(1 << 20);
        let (errors, _) = duplex(1);
        let stream = if args.iter().any(|arg| arg == "-c") { "zones" } else { "zfs" };
        self.with(|state| {
            state.log.push((tool, args));
            state.streams.insert(stream, far);
        });
        let ready =
            tokio::io::AsyncReadExt::chain(&b"{\"date\":\"d\",\"type\":\"ready\"}\n"[..], near);
        Ok(Follow::new(Box::new(ready), Box::new(errors), Box::pin(std::future::pending())))
    }

    fn converse(&self, tool: Tool, args: Vec<String>) -> Result<(Follow, Input), CommandError> {
        self.with(|state| state.log.push((tool, args)));
        if self.with(|state| state.is_deaf) {
            return Ok(simnode::fswatcher::Told::default().converse());
        }
        simnode::fswatcher::in_thread()
            .map_err(|error| CommandError::Io { tool, error: error.into() })
    }
}

/// The columns that were asked for.
fn row_line(row: &Map<String, Value>, columns: &str) -> String {
    let cells = columns.split(',').map(|key| row.get(key).and_then(Value::as_str).unwrap_or("-"));
    cells.collect::<Vec<_>>().join("	")
        + "
"
}

fn output(status: i32, stdout: String, stderr: &str) -> Output {
    Output { status, stdout: stdout.into_bytes(), stderr: stderr.as_bytes().to_vec() }
}
