// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node's `zfs`: arguments and output of the subcommands that vmadm, imgadm and vminfod use.
//! Their effects are in `dataset_ops.rs`.

use crate::datasets::{Datasets, History, is_below};
use crate::error::NodeError;
use crate::getopt::{Failed, Parsed, Said};
use crate::node::{Node, Zfs};
use crate::payload;

mod get;

mod list;

mod rows;

mod values;

const USAGE: &str = "usage: zfs list|get|create|clone|snapshot|bookmark|destroy|rename|set|inherit|rollback|mount|unmount|\
                     send|receive ...";

/// What libzfs says where it does nothing in the global zone.
const OF_ZONE: &str = "is used in a non-global zone";
const NOT_SET: &str = "cannot be set on dataset in a non-global zone";

fn usage() -> Failed {
    Failed(2, USAGE.to_string())
}

fn parsed(args: &[String], plain: &str, with: &str) -> Result<Parsed, Failed> {
    Parsed::read(args, plain, with).map_err(|what| Failed(2, format!("{what}\n{USAGE}")))
}

pub(crate) fn zfs(node: &Node, args: &[String]) -> Said {
    let Some((verb, args)) = args.split_first() else { return Err(usage()).into() };
    let said = match verb.as_str() {
        "list" => list::list(node, args),
        "get" => get::get(node, args),
        _ => change(node, verb, args).map(|()| Said::default()),
    };
    said.unwrap_or_else(|failed| Err(failed).into())
}

type Change<'a> = &'a dyn Fn(&mut Datasets, &str) -> Result<Vec<History>, NodeError>;

fn change(node: &Node, verb: &str, args: &[String]) -> Result<(), Failed> {
    // Each dataset by itself, as zfs does it.
    let each = |names: &[String], change: Change<'_>| match names {
        [] => Err(usage()),
        names => Ok(names.iter().try_for_each(|name| node.zfs(|all| change(all, name)))?),
    };
    match verb {
        "set" => set(node, args),
        "inherit" => {
            let p = parsed(args, "rS", "")?;
            let [key, names @ ..] = p.operands.as_slice() else { return Err(usage()) };
            for name in names.iter().filter(|_| key == "mountpoint" && !p.has('S')) {
                let what = format!("cannot inherit {key} for '{name}'");
                is_nodes(node, name, &[name], &format!("{what}: dataset {OF_ZONE}"))?;
            }
            each(names, &|all, name| all.inherit(name, key, p.has('S')))
        }
        "create" => {
            let p = parsed(args, "ps", "Vo")?;
            if node.info().zfs == Zfs::Fuse && p.value('V').is_some() {
                return Err(Failed(134, "internal error: Function not implemented".to_string()));
            }
            let size = p.value('V').map(|text| {
                let bad = || Failed(2, format!("bad volume size '{text}': invalid numeric value"));
                payload::bytes(text).ok_or_else(bad)
            });
            p.operands.iter().try_for_each(|name| node.check_pool(name))?;
            match size.transpose()? {
                Some(size) => each(&p.operands, &|all, name| all.create_volume(name, size))?,
                None => each(&p.operands, &|all, name| all.create(name))?,
            }
            p.values('o').try_for_each(|pair| {
                set(node, &[&[pair.to_string()], p.operands.as_slice()].concat())
            })
        }
        "clone" => {
            let [origin, name] = args else { return Err(usage()) };
            node.check_pool(name)?;
            Ok(node.zfs(|all| all.clone_from(origin, name))?)
        }
        "snapshot" | "snap" => {
            let p = parsed(args, "r", "")?;
            p.operands.iter().try_for_each(|name| node.check_room(name))?;
            match p.operands.as_slice() {
                [] => Err(usage()),
                names => Ok(node.zfs(|all| all.snapshot_at_once(names, p.has('r')))?),
            }
        }
        "destroy" => {
            let p = parsed(args, "rRfF", "")?;
            each(&p.operands, &|all, name| match p.has('R') {
                true => all.destroy_with_clones(name),
                false => all.destroy(name, p.has('r')),
            })
        }
        "rollback" => {
            let p = parsed(args, "rRf", "")?;
            let [name] = p.operands.as_slice() else { return Err(usage()) };
            Ok(node.zfs_rollback(name, p.has('r') || p.has('R'))?)
        }
        "bookmark" if node.info().zfs == Zfs::Illumos => {
            let [snapshot, bookmark] = args else { return Err(usage()) };
            Ok(node.zfs_bookmark(snapshot, bookmark)?)
        }
        "hold" | "release" => {
            let p = parsed(args, "r", "")?;
            let [tag, names @ ..] = p.operands.as_slice() else { return Err(usage()) };
            each(names, &|all, name| match verb {
                "hold" => all.hold(tag, name, p.has('r')),
                _ => all.release(tag, name, p.has('r')),
            })
        }
        "load-key" | "unload-key" if node.info().zfs == Zfs::Illumos => {
            each(args, &|all, name| all.load_key(name, verb == "load-key"))
        }
        "mount" | "unmount" | "umount" => {
            let p = parsed(args, "f", "")?;
            let [name] = p.operands.as_slice() else { return Err(usage()) };
            Ok(node.zfs_mount(name, verb == "mount")?)
        }
        "promote" => {
            let [clone] = args else { return Err(usage()) };
            Ok(node.zfs_promote(clone)?)
        }
        "rename" => {
            let p = parsed(args, "prfu", "")?;
            let [old, new] = p.operands.as_slice() else { return Err(usage()) };
            let of = node.datasets()?.with_dependents(old);
            let what = format!("cannot rename '{old}'");
            is_nodes(node, old, &[old], &format!("{what}: dataset {OF_ZONE}"))?;
            let child = format!("{what}: child dataset with inherited mountpoint {OF_ZONE}");
            is_nodes(node, old, &of.iter().collect::<Vec<_>>(), &child)?;
            Ok(node.zfs_rename(old, new)?)
        }
        _ => Err(Failed(2, format!("unrecognized command '{verb}'\n{USAGE}"))),
    }
}

/// Refuses with these words if one of the datasets is a zone's, as libzfs does in the global zone. What belongs to a zone
/// that runs is changed from within it.
fn is_nodes(node: &Node, dataset: &str, of: &[&String], why: &str) -> Result<(), Failed> {
    let all = node.datasets()?;
    let is_on = |name: &&String| all.get(name).is_some_and(|row| row.get("zoned") == "on");
    let zones = node.zones()?;
    let mut active =
        zones.listed(false).into_iter().map(|zone| zone.zonepath.trim_start_matches('/'));
    if of.iter().any(is_on) && !active.any(|zonepath| is_below(dataset, zonepath)) {
        return Err(NodeError::refused(why.to_owned()).into());
    }
    Ok(())
}

/// `zfs set` of one property, or of several where the node's `zfs` can.
fn set(node: &Node, args: &[String]) -> Result<(), Failed> {
    let pairs = args.iter().take_while(|arg| arg.contains('=')).count();
    let pairs = if node.info().zfs == Zfs::Fuse { pairs.min(1) } else { pairs };
    let (pairs, names) = args.split_at(pairs);
    if pairs.is_empty() || names.is_empty() {
        return Err(usage());
    }
    for name in names {
        for (key, value) in pairs.iter().filter_map(|pair| pair.split_once('=')) {
            node.check_limit(name, key, value)?;
            if key == "mountpoint" && value.starts_with('/') {
                let what = format!("cannot set property for '{name}': '{key}'");
                is_nodes(node, name, &[name], &format!("{what} {NOT_SET}"))?;
            }
            node.zfs(|all| all.set(name, key, value))?;
        }
    }
    Ok(())
}
