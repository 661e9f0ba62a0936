// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node's `zfs`: arguments and output of the subcommands that vmadm, imgadm and vminfod use.
//! Their effects are in `dataset_ops.rs`.

use crate::datasets::Dataset;
use crate::ended::Ended;
use crate::error::NodeError;
use crate::node::Node;
use crate::payload;

const USAGE: &str =
    "usage: zfs list|create|clone|snapshot|destroy|rename|set|inherit|rollback|hold|release ...";

/// Options and operands of a subcommand.
#[derive(Default)]
struct Parsed {
    flags: String,
    values: Vec<(char, String)>,
    operands: Vec<String>,
}

impl Parsed {
    /// Splits as getopt does: `with` are the options that take a value.
    fn read(args: &[String], plain: &str, with: &str) -> Result<Parsed, Ended> {
        let mut parsed = Parsed::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let Some(flags) = arg.strip_prefix('-').filter(|f| !f.is_empty()) else {
                parsed.operands.push(arg.clone());
                parsed.operands.extend(args.cloned());
                break;
            };
            for (at, flag) in flags.char_indices() {
                if plain.contains(flag) {
                    parsed.flags.push(flag);
                } else if with.contains(flag) {
                    let attached =
                        flags.get(at + 1..).filter(|rest| !rest.is_empty()).map(str::to_string);
                    let value = attached.or_else(|| args.next().cloned());
                    let missing = || {
                        Ended::Failed(2, format!("missing argument for '{flag}' option\n{USAGE}"))
                    };
                    parsed.values.push((flag, value.ok_or_else(missing)?));
                    break;
                } else {
                    return Err(Ended::Failed(2, format!("invalid option '{flag}'\n{USAGE}")));
                }
            }
        }
        Ok(parsed)
    }

    fn has(&self, flag: char) -> bool {
        self.flags.contains(flag)
    }

    fn value(&self, flag: char) -> Option<&str> {
        self.values.iter().rev().find(|(f, _)| *f == flag).map(|(_, v)| v.as_str())
    }

    fn properties(&self) -> Result<Vec<(String, String)>, Ended> {
        let pairs = self.values.iter().filter(|(f, _)| *f == 'o');
        pairs.map(|(_, v)| property(v)).collect()
    }
}

fn property(text: &str) -> Result<(String, String), Ended> {
    match text.split_once('=') {
        Some((key, value)) => Ok((key.to_string(), value.to_string())),
        None => Err(Ended::Failed(2, format!("missing value in property=value argument\n{USAGE}"))),
    }
}

pub(crate) fn zfs(node: &Node, args: &[String]) -> Ended {
    let Some((verb, args)) = args.split_first() else { return Ended::Failed(2, USAGE.to_string()) };
    let done = if verb == "list" {
        list(node, args)
    } else {
        change(node, verb, args).map(|()| String::new())
    };
    done.map_or_else(|ended| ended, Ended::Printed)
}

fn change(node: &Node, verb: &str, args: &[String]) -> Result<(), Ended> {
    let usage = || Ended::Failed(2, USAGE.to_string());
    match verb {
        "set" => {
            let p = Parsed::read(args, "", "")?;
            let (pairs, names): (Vec<String>, Vec<String>) =
                p.operands.iter().cloned().partition(|o| o.contains('='));
            if pairs.is_empty() || names.is_empty() {
                return Err(usage());
            }
            for name in &names {
                for pair in &pairs {
                    let (key, value) = property(pair)?;
                    node.zfs(|all| Ok(((), all.set(name, &key, &value)?)))?;
                }
            }
        }
        "create" => {
            let p = Parsed::read(args, "ps", "Vbo")?;
            let [name] = p.operands.as_slice() else { return Err(usage()) };
            let mut props = p.properties()?;
            if let Some(size) = p.value('b') {
                props.push(("volblocksize".to_string(), size.to_string()));
            }
            match p.value('V') {
                None => node.zfs(|all| Ok(((), all.create(name, &props)?)))?,
                Some(size) => {
                    let bad = || {
                        Ended::Failed(2, format!("bad volume size '{size}': invalid numeric value"))
                    };
                    let size = payload::bytes(size).ok_or_else(bad)?;
                    node.zfs(|all| Ok(((), all.create_volume(name, size, &props)?)))?;
                }
            }
        }
        "clone" => {
            let p = Parsed::read(args, "pF", "o")?;
            let [origin, name] = p.operands.as_slice() else { return Err(usage()) };
            let props = p.properties()?;
            node.zfs(|all| Ok(((), all.clone_from(origin, name, &props)?)))?;
        }
        "snapshot" | "snap" => {
            let p = Parsed::read(args, "r", "o")?;
            if p.operands.is_empty() {
                return Err(usage());
            }
            for name in &p.operands {
                node.zfs(|all| Ok(((), all.snapshot(name, p.has('r'))?)))?;
            }
        }
        "destroy" => {
            let p = Parsed::read(args, "rRfFdnv", "")?;
            let [name] = p.operands.as_slice() else { return Err(usage()) };
            let recursive = p.has('r') || p.has('R');
            node.zfs(|all| Ok(((), all.destroy(name, recursive)?)))?;
        }
        "rename" => {
            let p = Parsed::read(args, "fpr", "")?;
            let [from, to] = p.operands.as_slice() else { return Err(usage()) };
            let to = match (from.split_once('@'), to.strip_prefix('@')) {
                (Some((top, _)), Some(snap)) => format!("{top}@{snap}"),
                _ => to.clone(),
            };
            node.zfs(|all| Ok(((), all.rename(from, &to)?)))?;
        }
        "inherit" => {
            let p = Parsed::read(args, "rS", "")?;
            let [key, names @ ..] = p.operands.as_slice() else { return Err(usage()) };
            if names.is_empty() {
                return Err(usage());
            }
            for name in names {
                node.zfs(|all| Ok(((), all.inherit(name, key)?)))?;
            }
        }
        "rollback" => {
            let p = Parsed::read(args, "rRf", "")?;
            let [name] = p.operands.as_slice() else { return Err(usage()) };
            node.zfs_rollback(name, p.has('r') || p.has('R'))?;
        }
        "hold" | "release" => {
            let p = Parsed::read(args, "r", "")?;
            let [tag, names @ ..] = p.operands.as_slice() else { return Err(usage()) };
            let by = if verb == "hold" { 1 } else { -1 };
            for name in names {
                node.zfs(|all| Ok(((), all.hold(tag, name, by)?)))?;
            }
        }
        _ => return Err(Ended::Failed(2, format!("unrecognized command '{verb}'\n{USAGE}"))),
    }
    Ok(())
}

fn list(node: &Node, args: &[String]) -> Result<String, Ended> {
    let p = Parsed::read(args, "Hpr", "dtosS")?;
    let columns: Vec<&str> =
        p.value('o').unwrap_or("name,used,available,refer,mountpoint").split(',').collect();
    let kinds: Vec<&str> = p.value('t').unwrap_or("filesystem,volume").split(',').collect();
    let depth = match p.value('d') {
        Some(text) => Some(
            text.parse::<usize>()
                .map_err(|_| Ended::Failed(2, format!("({text}) is not a number")))?,
        ),
        None if p.has('r') || p.operands.is_empty() => None,
        None => Some(0),
    };
    let all = node.datasets().map_err(Ended::from)?;
    let mut text = String::new();
    if !p.has('H') {
        text.push_str(&columns.join("\t").to_uppercase());
        text.push('\n');
    }
    let mut print = |row: &Dataset| {
        let wanted = kinds
            .iter()
            .any(|k| *k == "all" || *k == row.kind() || (*k == "snap" && row.kind() == "snapshot"));
        if wanted {
            let fields: Vec<&str> = columns.iter().map(|c| row.get(c)).collect();
            text.push_str(&fields.join("\t"));
            text.push('\n');
        }
    };
    let rows = all.sorted();
    if p.operands.is_empty() {
        rows.iter().filter(|r| depth.is_none_or(|d| r.depth() <= d)).for_each(|r| print(r));
    }
    for name in &p.operands {
        let top =
            all.get(name).ok_or_else(|| Ended::from(NodeError::NoSuchDataset(name.clone())))?;
        let below = |r: &&&Dataset| {
            r.name == *name
                || r.name
                    .strip_prefix(name.as_str())
                    .is_some_and(|rest| rest.starts_with(['/', '@']))
        };
        let near = |r: &&&Dataset| depth.is_none_or(|d| r.depth() - top.depth() <= d);
        rows.iter().filter(below).filter(near).for_each(|r| print(r));
    }
    Ok(text)
}
