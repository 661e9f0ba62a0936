// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `zfs receive`: takes the bytes of a stream as they come. A snapshot appears as a whole when its
//! last record has arrived, and nothing of it before.

use crate::datasets::owner;
use crate::error::NodeError;
use crate::getopt::{Failed, Parsed};
use crate::node::{Node, Zfs};
use crate::receive_rules::{Arrival, Flags, Verdict, refused, stream_kind};
use crate::stream::{Begin, Decoder, Package, Record};
use crate::streams::arriving::{Current, Destination};
use crate::streams::fault::{Effect, End, Fault};
use crate::trees::Change;

const USAGE: &str = "usage: receive [-vnFsu] [-o property=value] [-x property] <filesystem|volume|snapshot>\n       \
                     receive -A <filesystem|volume>";

fn usage(what: &str) -> Failed {
    Failed(2, format!("{what}\n{USAGE}"))
}

/// What is next of a `zfs receive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It reads more.
    Reads,
    /// It neither reads nor ends.
    Hangs,
}

/// A running `zfs receive`.
pub struct Receiver {
    node: Node,
    to: String,
    flags: Flags,
    decoder: Decoder,
    package: Option<Package>,
    current: Option<Current>,
    snapshots: usize,
    read: u64,
    whole: bool,
    fault: Option<Fault>,
}

/// Starts `zfs receive` with these arguments (without `receive`). `None` if there is nothing to read.
pub fn receive(node: &Node, args: &[String]) -> Result<Option<Receiver>, Failed> {
    let p = match node.info().zfs {
        Zfs::Illumos => Parsed::read(args, "vnFsuA", "xo"),
        Zfs::Fuse => Parsed::read(args, "vnFdu", ""),
    };
    let p = p.map_err(|what| usage(&what))?;
    let [to] = p.operands.as_slice() else {
        let what =
            if p.operands.is_empty() { "missing snapshot argument" } else { "too many arguments" };
        return Err(usage(what));
    };
    if p.has('A') {
        node.abort_receive(to)?;
        return Ok(None);
    }
    let mut with = Vec::new();
    for pair in p.values('o') {
        let (key, value) =
            pair.split_once('=').ok_or_else(|| usage("missing '=' for -o option"))?;
        with.push((key.to_string(), value.to_string()));
    }
    Ok(Some(Receiver {
        node: node.clone(),
        to: to.clone(),
        flags: Flags {
            force: p.has('F'),
            resumable: p.has('s'),
            unmounted: p.has('u'),
            without: p.values('x').map(str::to_string).collect(),
            with,
        },
        decoder: Decoder::default(),
        package: None,
        current: None,
        snapshots: 0,
        read: 0,
        whole: false,
        fault: node.take_stream_fault(End::Receive)?,
    }))
}

impl Receiver {
    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Flow, Failed> {
        let due = self.fault.and_then(|fault| {
            let at = usize::try_from(fault.after.checked_sub(self.read)?).ok()?;
            (at < bytes.len()).then_some((at, fault.effect))
        });
        self.read += bytes.len() as u64;
        let Some((at, effect)) = due else { return self.records(bytes).map(|()| Flow::Reads) };
        let (before, after) = bytes.split_at(at);
        self.records(before)?;
        match effect {
            Effect::Ends => Err(self.broken("invalid backup stream")),
            Effect::NoSpace => Err(self.broken("out of space")),
            Effect::Hangs => Ok(Flow::Hangs),
            Effect::Flips => {
                let mut after = after.to_vec();
                after[0] ^= 0x10;
                self.records(&after).map(|()| Flow::Reads)
            }
        }
    }

    /// The stream is at its end.
    pub fn finish(self) -> Result<(), Failed> {
        if self.current.is_some() {
            return Err(self.broken("invalid backup stream"));
        }
        let whole = self.whole || self.package.is_none() && self.snapshots > 0;
        if !whole || !self.decoder.is_at_end() {
            return Err(Failed(1, "cannot receive: failed to read from stream".to_string()));
        }
        Ok(())
    }

    fn records(&mut self, bytes: &[u8]) -> Result<(), Failed> {
        self.decoder.push(bytes);
        loop {
            match self.decoder.take() {
                Ok(Some(record)) => self.record(record)?,
                Ok(None) => return Ok(()),
                Err(damage) => return Err(self.broken(&damage.to_string())),
            }
        }
    }

    /// The end of a receive in the middle of a stream.
    fn broken(&self, why: &str) -> Failed {
        let Some(current) = &self.current else {
            return Failed(1, format!("cannot receive: {why}"));
        };
        let kind = stream_kind(&current.begin);
        let name = current.verdict.name();
        let token = current.partial.as_ref().and_then(|_| {
            let all = self.node.datasets().ok()?;
            self.node.resume_token(&all, name)
        });
        Failed(
            1,
            match token {
                Some(token) if why != "out of space" => format!(
                    "cannot receive {kind} stream: checksum mismatch or incomplete stream.\n\
                 Partially received snapshot is saved.\n\
                 A resuming stream can be generated on the sending system by running:\n    \
                 zfs send -t {token}"
                ),
                _ => format!("cannot receive {kind} stream: {why}"),
            },
        )
    }

    fn record(&mut self, record: Record) -> Result<(), Failed> {
        let out_of_place = self.whole
            || match record {
                Record::Package(_) => self.package.is_some() || self.snapshots > 0,
                Record::Begin(_) => {
                    self.current.is_some() || self.package.is_none() && self.snapshots > 0
                }
                Record::Change(_) | Record::End => self.current.is_none(),
                Record::Last => self.current.is_some() || self.package.is_none(),
            };
        if out_of_place {
            return Err(self.broken("invalid backup stream"));
        }
        match record {
            Record::Package(package) => self.package(package)?,
            Record::Begin(begin) => self.begin(begin)?,
            Record::Change(change) => return self.change(change),
            Record::End => self.end()?,
            Record::Last => self.whole = true,
        }
        Ok(())
    }

    fn dataset(&self) -> &str {
        owner(&self.to)
    }

    fn package(&mut self, package: Package) -> Result<(), NodeError> {
        if self.flags.force {
            let top = self.dataset().to_string();
            self.node.zfs(|all| {
                let mut history = Vec::new();
                for name in all.gone_from(&package, &top) {
                    // What has clones stays.
                    history.extend(all.destroy(&name, !name.contains('@')).unwrap_or_default());
                }
                Ok(history)
            })?;
        }
        self.package = Some(package);
        Ok(())
    }

    fn begin(&mut self, mut begin: Begin) -> Result<(), NodeError> {
        let mut name = self.dataset().to_string();
        if let Some(package) = &self.package {
            name += begin.dataset.strip_prefix(&package.top).unwrap_or_default();
        } else if let Some((_, snapshot)) = self.to.split_once('@') {
            begin.snapshot = snapshot.to_string();
        }
        let node = self.node.clone();
        let all = node.datasets()?;
        let same =
            |one: &str, other: &str| Ok(node.contents(&all, one)? == node.contents(&all, other)?);
        let arrival = Arrival {
            all: &all,
            zfs: node.info().zfs,
            flags: &self.flags,
            package: self.package.is_some(),
            same: &same,
        };
        let busy = || node.receiving(&name).map_err(|error| refused(&begin, error));
        let first = busy()?;
        let verdict = arrival.judge(&name, &begin)?;
        // An increment may go to another dataset than was named.
        let busy = match verdict.name() {
            "" => None,
            other if other == name => Some(first),
            other => Some(node.receiving(other).map_err(|error| refused(&begin, error))?),
        };
        let near = match (&verdict, name.rsplit_once('/')) {
            (Verdict::New { .. }, Some((parent, _))) => parent,
            _ => &name,
        };
        let room = node.measured(&all).available(near)?;
        let mut current =
            Current { begin, verdict, changes: Vec::new(), room, partial: None, _busy: busy };
        current.keep(&node, self.flags.resumable)?;
        self.current = Some(current);
        Ok(())
    }

    fn change(&mut self, change: Change) -> Result<(), Failed> {
        let Some(current) = &mut self.current else { return Ok(()) };
        if let Change::Data(_, _, block) = &change {
            match current.room.checked_sub(block.len() as u64) {
                Some(room) => current.room = room,
                None if current.verdict == Verdict::Skip => {}
                None => return Err(self.broken("out of space")),
            }
        }
        let record = Record::Change(change);
        if let Some(partial) = &mut current.partial {
            partial.add(&record)?;
        }
        if let Record::Change(change) = record {
            current.changes.push(change);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Failed> {
        let Some(current) = &self.current else { return Ok(()) };
        if current.verdict != Verdict::Skip {
            let node = self.node.clone();
            let packed = self.package.as_ref().and_then(|package| {
                let path = current.begin.dataset.strip_prefix(&package.top)?;
                package.filesystems.iter().find(|packed| packed.path == path)
            });
            let to = Destination {
                node: &node,
                flags: &self.flags,
                props: packed.and_then(|packed| packed.props.clone()),
                is_top: current.verdict.name() == self.dataset(),
            };
            node.zfs(|all| current.commit(all, &to))?;
        }
        self.snapshots += 1;
        if let Some(Current { partial: Some(partial), .. }) = self.current.take() {
            partial.remove()?;
        }
        Ok(())
    }
}
