// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Two nodes, and streams between them.

use std::collections::BTreeMap;

use tempfile::TempDir;

use crate::exec;
use crate::getopt::Failed;
use crate::streams::receive::receive;
use crate::streams::send::{Then, send};
use crate::trees::Tree;
use crate::{CreateOptions, Node};

/// A command's end: what it printed, or its status and stderr.
pub(super) type Answer = Result<String, (u8, String)>;

pub(super) struct Pair {
    _dir: TempDir,
    pub(super) source: Node,
    pub(super) target: Node,
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_string).collect()
}

pub(super) fn zfs(node: &Node, line: &str) -> Answer {
    let output = exec::answer(node, "zfs", &words(line));
    match output.status {
        0 => Ok(String::from_utf8(output.stdout).unwrap()),
        status => Err((status as u8, String::from_utf8(output.stderr).unwrap())),
    }
}

/// The value of one property.
pub(super) fn get(node: &Node, key: &str, name: &str) -> String {
    let value = zfs(node, &format!("get -Hp -o value {key} {name}")).unwrap();
    value.trim_end().to_string()
}

/// The bytes that `zfs send` writes, and how it ends.
pub(super) fn sent(node: &Node, line: &str) -> (Vec<u8>, Result<(), (u8, String)>) {
    match send(node, &words(line)) {
        Ok(out) => match out.then {
            Then::Ends(0, _) => (out.bytes, Ok(())),
            Then::Ends(status, text) => (out.bytes, Err((status, text))),
            Then::Hangs => (out.bytes, Err((137, "hangs".to_string()))),
        },
        Err(Failed(status, text)) => (Vec::new(), Err((status, text))),
    }
}

/// `zfs receive` of these bytes, in pieces.
pub(super) fn received(node: &Node, line: &str, bytes: &[u8]) -> Result<(), (u8, String)> {
    let run = || {
        let Some(mut receiver) = receive(node, &words(line))? else { return Ok(()) };
        for piece in bytes.chunks(1000) {
            receiver.push(piece)?;
        }
        receiver.finish()
    };
    run().map_err(|Failed(status, text)| (status, text))
}

/// The snapshots of a dataset: name, number, contents and own properties, oldest first.
pub(super) type Snapshots = Vec<(String, u64, Tree, Vec<(String, String)>)>;

pub(super) fn snapshots(node: &Node, dataset: &str) -> Snapshots {
    let all = node.datasets().unwrap();
    let of = all.snapshots(dataset).into_iter();
    of.map(|row| {
        let name = row.name.split_once('@').unwrap().1.to_string();
        let contents = node.contents(&all, &row.name).unwrap();
        let own = all.own_properties(&row.name).into_iter().collect();
        (name, row.guid().unwrap(), contents, own)
    })
    .collect()
}

impl Pair {
    pub(super) fn new() -> Pair {
        let dir = TempDir::new().unwrap();
        let node = |name: &str, seed| {
            let options =
                CreateOptions { vms: 0, seed, ..CreateOptions::new(dir.path().join(name)) };
            Node::create(&options).unwrap()
        };
        let (source, target) = (node("source", 1), node("target", 2));
        Pair { source, target, _dir: dir }
    }

    /// Sends and receives; returns how both ended, the receiver first.
    pub(super) fn copy(&self, send: &str, receive: &str) -> Result<(), (u8, String)> {
        let (bytes, ended) = sent(&self.source, send);
        received(&self.target, receive, &bytes).and(ended)
    }

    /// The datasets of a tree with their snapshots and own properties.
    pub(super) fn state(
        node: &Node,
        top: &str,
    ) -> BTreeMap<String, (Snapshots, Vec<(String, String)>)> {
        let all = node.datasets().unwrap();
        let tree = all.tree(top).into_iter();
        tree.map(|row| {
            let own = all.own_properties(&row.name).into_iter().collect();
            (row.name.clone(), (snapshots(node, &row.name), own))
        })
        .collect()
    }
}
