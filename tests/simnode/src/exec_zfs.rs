// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node's `zfs`: arguments and output of the subcommands that vmadm, imgadm and vminfod use.
//! Their effects are in `dataset_ops.rs`.

use crate::datasets::{Dataset, Datasets, History};
use crate::error::NodeError;
use crate::getopt::{Ended, Failed, Parsed};
use crate::node::Node;
use crate::payload;

const USAGE: &str = "usage: zfs list|create|snapshot|destroy|rename|set|inherit|rollback ...";

fn usage() -> Failed {
    Failed(2, USAGE.to_string())
}

fn parsed(args: &[String], plain: &str, with: &str) -> Result<Parsed, Failed> {
    Parsed::read(args, plain, with).map_err(|what| Failed(2, format!("{what}\n{USAGE}")))
}

pub(crate) fn zfs(node: &Node, args: &[String]) -> Ended {
    let (verb, args) = args.split_first().ok_or_else(usage)?;
    if verb == "list" {
        return list(node, args);
    }
    change(node, verb, args).map(|()| String::new())
}

type Change<'a> = &'a dyn Fn(&mut Datasets, &str) -> Result<Vec<History>, NodeError>;

fn change(node: &Node, verb: &str, args: &[String]) -> Result<(), Failed> {
    // Each dataset by itself, as zfs does it.
    let each = |names: &[String], change: Change<'_>| match names {
        [] => Err(usage()),
        names => Ok(names.iter().try_for_each(|name| node.zfs(|all| change(all, name)))?),
    };
    match verb {
        "set" => {
            let [pair, names @ ..] = args else { return Err(usage()) };
            let (key, value) = pair.split_once('=').ok_or_else(usage)?;
            each(names, &|all, name| all.set(name, key, value))
        }
        "inherit" => {
            let [key, names @ ..] = args else { return Err(usage()) };
            each(names, &|all, name| all.inherit(name, key))
        }
        "create" => {
            let p = parsed(args, "ps", "V")?;
            let size = p.value('V').map(|text| {
                let bad = || Failed(2, format!("bad volume size '{text}': invalid numeric value"));
                payload::bytes(text).ok_or_else(bad)
            });
            match size.transpose()? {
                Some(size) => each(&p.operands, &|all, name| all.create_volume(name, size)),
                None => each(&p.operands, &|all, name| all.create(name)),
            }
        }
        "snapshot" | "snap" => {
            let p = parsed(args, "r", "")?;
            each(&p.operands, &|all, name| all.snapshot(name, p.has('r')))
        }
        "destroy" => {
            let p = parsed(args, "rRfF", "")?;
            each(&p.operands, &|all, name| all.destroy(name, p.has('r') || p.has('R')))
        }
        "rollback" => {
            let p = parsed(args, "rRf", "")?;
            let [name] = p.operands.as_slice() else { return Err(usage()) };
            Ok(node.zfs_rollback(name, p.has('r') || p.has('R'))?)
        }
        "rename" => {
            let p = parsed(args, "prfu", "")?;
            let [old, new] = p.operands.as_slice() else { return Err(usage()) };
            Ok(node.zfs_rename(old, new)?)
        }
        _ => Err(Failed(2, format!("unrecognized command '{verb}'\n{USAGE}"))),
    }
}

fn list(node: &Node, args: &[String]) -> Ended {
    let p = parsed(args, "Hpr", "dto")?;
    let columns: Vec<&str> =
        p.value('o').unwrap_or("name,used,available,refer,mountpoint").split(',').collect();
    let kinds: Vec<&str> = p.value('t').unwrap_or("filesystem,volume").split(',').collect();
    let depth = match p.value('d') {
        Some(text) => Some(
            text.parse::<usize>().map_err(|_| Failed(2, format!("({text}) is not a number")))?,
        ),
        None if p.has('r') || p.operands.is_empty() => None,
        None => Some(0),
    };
    let all = node.datasets()?;
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
        let top = all.get(name).ok_or_else(|| NodeError::NoSuchDataset(name.clone()))?;
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
