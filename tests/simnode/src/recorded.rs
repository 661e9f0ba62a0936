// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Commands that print what was recorded.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use daemon::command::{Call, CommandError, Commands, Launch, Output, Pipes, Program, Run, Running};

use crate::feeds::Feeds;
use crate::fswatcher::Told;

/// The columns of a listing that was recorded, in the order in which the deployed daemon asks for them.
pub const COLUMNS: &str = "compression,creation,filesystem_limit,mountpoint,name,quota,recsize,refquota,refreservation,\
                           snapshot_limit,type,usedbysnapshots,userrefs,volblocksize,volsize,written,zoned";

/// `zfs list` of everything with those columns, two datasets deep.
pub const LIST_ALL: [&str; 9] =
    ["list", "-H", "-p", "-t", "filesystem,snapshot,volume", "-o", COLUMNS, "-d", "2"];

/// The commands of a node of which the whole listings are known: what `zoneadm list`, `zfs list`
/// with all columns, and `kstat` print. Its sysevents are fed; its file watcher tells nothing.
#[derive(Clone, Default)]
pub struct Listings {
    outputs: Arc<Mutex<HashMap<Program, Output>>>,
    /// The followers of sysevents.
    pub feeds: Feeds,
}

impl Listings {
    /// From now on the tool prints this, or the part of it that is asked for.
    pub fn put(&self, tool: Program, output: Output) {
        self.outputs.lock().unwrap_or_else(PoisonError::into_inner).insert(tool, output);
    }

    /// Runs a command and returns its output.
    pub fn answer(&self, tool: Program, args: &[String]) -> Output {
        let known = self.outputs.lock().unwrap_or_else(PoisonError::into_inner).get(&tool).cloned();
        let lists = tool == Program::Kstat || args.iter().any(|arg| arg == "list");
        let Some(output) = known.filter(|_| lists) else {
            let what = format!("no answer was recorded for {} {}", tool.name(), args.join(" "));
            return Output { status: 2, stdout: Vec::new(), stderr: what.into_bytes() };
        };
        let (stdout, missing) = match (tool, args) {
            (Program::Zfs, _) => {
                let listed = zfs_list(&output.stdout, args);
                let missing: Vec<String> = operands(args)
                    .filter_map(|name| {
                        let why = why_not(&output.stdout, name, args)?;
                        Some(format!("cannot open '{name}': {why}"))
                    })
                    .collect();
                if !missing.is_empty() && output.status == 0 {
                    let stderr = (missing.join("\n") + "\n").into_bytes();
                    return Output { status: 1, stdout: listed, stderr };
                }
                (listed, None)
            }
            (Program::Zoneadm, [flag, name, ..]) if flag == "-z" => {
                let row = |at: usize, text: &str| {
                    let is_it =
                        |line: &&[u8]| line.split(|b| *b == b':').nth(at) == Some(text.as_bytes());
                    output.stdout.split_inclusive(|b| *b == b'\n').find(is_it)
                };
                // zoneadm(8): the zone of the uuid instead of the one of the name, if there is one.
                let uuid = args.iter().skip_while(|arg| *arg != "-u").nth(1);
                let of_uuid = uuid.and_then(|uuid| row(4, uuid));
                let line = of_uuid.or_else(|| row(1, name));
                let missing = format!("zoneadm: zone '{name}': No such zone configured");
                (line.unwrap_or_default().to_vec(), Some(missing))
            }
            _ => (output.stdout, None),
        };
        match missing.filter(|_| stdout.is_empty() && output.status == 0) {
            Some(missing) => Output { status: 1, stdout, stderr: missing.into_bytes() },
            None => Output { stdout, ..output },
        }
    }
}

impl Commands for Listings {
    fn run(&self, call: Call) -> Run<'_> {
        Box::pin(async move { Ok(self.answer(call.program, &call.args)) })
    }

    fn start(&self, launch: Launch) -> Result<Running, CommandError> {
        Ok(match launch.pipes {
            Pipes::Out => self.feeds.follow(&launch.args),
            Pipes::In | Pipes::Both => Told::default().converse(),
        })
    }
}

/// The datasets that are named after the depth.
fn operands(args: &[String]) -> impl Iterator<Item = &String> {
    args.iter().skip_while(|arg| *arg != "-d").skip(2)
}

fn place(column: &str) -> Option<usize> {
    COLUMNS.split(',').position(|one| one == column)
}

/// Returns why zfs does not list what is named, if it does not.
fn why_not(recorded: &[u8], name: &str, args: &[String]) -> Option<&'static str> {
    let cell = |line: &[u8], column| {
        let cells = line.split(|byte| *byte == b'\t').nth(place(column)?);
        cells.map(<[u8]>::to_vec)
    };
    let mut lines = recorded.split(|byte| *byte == b'\n');
    let line = lines.find(|line| cell(line, "name").as_deref() == Some(name.as_bytes()));
    let kind = line.and_then(|line| cell(line, "type"));
    let types = args.iter().skip_while(|arg| *arg != "-t").nth(1);
    let is_wanted = |kind: &[u8]| {
        let mut types = types.into_iter().flat_map(|types| types.split(','));
        kind == b"filesystem" || types.any(|one| one.as_bytes() == kind)
    };
    match kind {
        None => Some("dataset does not exist"),
        Some(kind) if !is_wanted(&kind) => {
            Some("operation not applicable to datasets of this type")
        }
        Some(_) => None,
    }
}

/// What `zfs` prints for these arguments, from a recorded listing of all datasets with all [`COLUMNS`].
/// Lines that are no rows are printed as they were.
pub fn zfs_list(recorded: &[u8], args: &[String]) -> Vec<u8> {
    let after = |flag: &str, nth| args.iter().skip_while(|arg| *arg != flag).nth(nth);
    let all: Vec<&str> = COLUMNS.split(',').collect();
    let wanted: Vec<usize> = match after("-o", 1) {
        Some(columns) => columns.split(',').filter_map(place).collect(),
        None => (0..all.len()).collect(),
    };
    let types: Vec<&[u8]> = match after("-t", 1) {
        Some(types) => types.split(',').map(str::as_bytes).collect(),
        None => vec![b"filesystem"],
    };
    let tops: HashSet<&[u8]> = operands(args).map(|top| top.as_bytes()).collect();
    let levels = after("-d", 1).and_then(|text| text.parse::<usize>().ok());
    let above = |name: &[u8]| {
        let at = name.iter().rposition(|b| matches!(b, b'/' | b'@'));
        name.get(..at?).map(<[u8]>::to_vec)
    };
    let is_below = |name: &[u8]| {
        let mut name = Some(name.to_vec());
        // A listing of the node is as deep as it was recorded.
        (0..=levels.unwrap_or_default()).any(|_| {
            let is_top = name.as_ref().is_some_and(|name| tops.contains(&**name));
            name = name.as_deref().and_then(above);
            is_top
        }) || tops.is_empty()
    };
    let (name, kind) = (place("name").unwrap_or_default(), place("type").unwrap_or_default());
    let mut printed = Vec::new();
    for line in recorded.split_inclusive(|byte| *byte == b'\n') {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let columns: Vec<&[u8]> = text.split(|byte| *byte == b'\t').collect();
        if columns.len() != all.len() {
            printed.extend_from_slice(line);
        } else if types.contains(&columns[kind]) && is_below(columns[name]) {
            let shown = wanted.iter().filter_map(|at| columns.get(*at).copied());
            printed.extend(shown.collect::<Vec<_>>().join(&b'\t'));
            printed.extend_from_slice(line.get(text.len()..).unwrap_or_default());
        }
    }
    printed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn types_columns_and_datasets_are_chosen() {
        let row = |name: &str, kind: &str| {
            let columns = COLUMNS.split(',').map(|column| match column {
                "name" => name,
                "type" => kind,
                _ => "-",
            });
            columns.collect::<Vec<_>>().join("\t") + "\n"
        };
        let all = row("z", "filesystem") + "odd\n" + &row("z@a", "snapshot");
        let listed = zfs_list(all.as_bytes(), &args("list -t snapshot -o type,name"));
        assert_eq!(String::from_utf8_lossy(&listed), "odd\nsnapshot\tz@a\n");
        let listed = zfs_list(all.as_bytes(), &args("list -o name -d 1 zone"));
        assert_eq!(String::from_utf8_lossy(&listed), "odd\n");
        let all = row("z", "filesystem") + &row("z/a", "filesystem") + &row("z/b", "filesystem");
        for (of, found) in
            [("-d 0 z", "z\n"), ("-d 0 z/b z/a", "z/a\nz/b\n"), ("-d 1 z", "z\nz/a\nz/b\n")]
        {
            let listed = zfs_list(all.as_bytes(), &args(&format!("list -o name {of}")));
            assert_eq!(String::from_utf8_lossy(&listed), found, "{of}");
        }
    }
}
