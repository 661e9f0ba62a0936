// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `zfs send`: arguments, estimates, and the bytes of the stream.

use crate::error::NodeError;
use crate::getopt::{Failed, Parsed};
use crate::node::{Node, Zfs};
use crate::send_plan::{Plan, Wanted};
use crate::stream::{Begin, Encoder, Record};
use crate::streams::fault::{Effect, End, Fault};
use crate::streams::partial::read_token;
use crate::trees::Tree;

/// What `zfs send` does: the bytes that it writes, and then.
#[derive(Debug)]
pub struct Outgoing {
    /// The stream, or the text of an estimate.
    pub bytes: Vec<u8>,
    pub then: Then,
}

/// The end of a `zfs send`.
#[derive(Debug)]
pub enum Then {
    /// A status, and what stderr says.
    Ends(u8, String),
    /// It does not end.
    Hangs,
}

const USAGE: &str =
    "usage: send [-DnPpRv] [-[iI] snapshot] <snapshot>\n       send [-nvP] -t <token>";

fn usage(what: &str) -> Failed {
    Failed(2, format!("{what}\n{USAGE}"))
}

/// The letters of the long options of illumos; zfs-fuse has none.
fn short(args: &[String], zfs: Zfs) -> Vec<String> {
    let letter = |arg: &String| match arg.as_str() {
        "--replicate" => "-R".to_string(),
        "--props" => "-p".to_string(),
        "--dryrun" => "-n".to_string(),
        "--parsable" => "-P".to_string(),
        "--verbose" => "-v".to_string(),
        "--raw" => "-w".to_string(),
        _ => arg.clone(),
    };
    if zfs == Zfs::Fuse { args.to_vec() } else { args.iter().map(letter).collect() }
}

/// Runs `zfs send` with these arguments (without `send`).
pub fn send(node: &Node, args: &[String]) -> Result<Outgoing, Failed> {
    let zfs = node.info().zfs;
    let args = short(args, zfs);
    let p = match zfs {
        Zfs::Illumos => Parsed::read(&args, "DnPpRvLecw", "iIt"),
        Zfs::Fuse => Parsed::read(&args, "DpRv", "iI"),
    };
    let p = p.map_err(|what| usage(&what))?;
    let all = node.datasets()?;
    let plan = if let Some(token) = p.value('t') {
        if !p.operands.is_empty() {
            return Err(usage("too many arguments"));
        }
        let corrupt = || NodeError::refused("cannot resume send: resume token is corrupt");
        all.resumed(&read_token(token).ok_or_else(corrupt)?)?
    } else {
        let to = match p.operands.as_slice() {
            [] => return Err(usage("missing snapshot argument")),
            [to] if to.contains('@') => to.clone(),
            [_] => return Err(usage("argument must be a snapshot")),
            _ => return Err(usage("too many arguments")),
        };
        let from = p.value('I').or(p.value('i')).map(str::to_string);
        let (every, replicate) = (p.value('I').is_some(), p.has('R'));
        let (props, raw) = (p.has('p'), p.has('w'));
        let wanted = Wanted { to, from, all: every, replicate, props, raw };
        all.plan(&wanted).map_err(|error| match error {
            NodeError::OtherFilesystem => usage(&error.to_string()),
            error => error.into(),
        })?
    };
    let parts = encoded(node, &plan)?;
    let warnings = plan.warnings.join("\n");
    let status = u8::from(!warnings.is_empty());
    if p.has('n') {
        let bytes = estimate(&plan, &parts, &p).into_bytes();
        return Ok(Outgoing { bytes, then: Then::Ends(status, warnings) });
    }
    let outgoing = Outgoing { bytes: parts.concat(), then: Then::Ends(status, warnings) };
    Ok(match node.take_stream_fault(End::Send)? {
        Some(fault) => failing(outgoing, fault),
        None => outgoing,
    })
}

/// The bytes of the package, of each snapshot, and of the end.
fn encoded(node: &Node, plan: &Plan) -> Result<Vec<Vec<u8>>, NodeError> {
    let all = node.datasets()?;
    let mut encoder = Encoder::default();
    let mut bytes = Vec::new();
    bytes.push(
        plan.package.iter().flat_map(|p| encoder.frame(&Record::Package(p.clone()))).collect(),
    );
    for part in &plan.parts {
        let base = match &part.base {
            Some(base) => node.contents(&all, base)?,
            None => Tree::default(),
        };
        let changes = node.contents(&all, &part.to)?.changes_from(&base);
        let mut frames = encoder.frame(&Record::Begin(part.begin.clone()));
        let known = usize::try_from(part.begin.resume.unwrap_or(0)).unwrap_or(usize::MAX);
        for change in changes.into_iter().skip(known) {
            frames.extend(encoder.frame(&Record::Change(change)));
        }
        frames.extend(encoder.frame(&Record::End));
        bytes.push(frames);
    }
    bytes.push(plan.package.iter().flat_map(|_| encoder.frame(&Record::Last)).collect());
    Ok(bytes)
}

/// What `-n` prints: with `-P` a line per snapshot and a last line `size N`, but of a resumed stream
/// its one snapshot only, after what the token says.
fn estimate(plan: &Plan, parts: &[Vec<u8>], p: &Parsed) -> String {
    let total: usize = parts.iter().map(Vec::len).sum();
    let is_told = p.has('P') || p.has('v');
    let resumed = plan.parts.first().filter(|_| is_told && p.value('t').is_some());
    let mut text = resumed.map(|part| contents(&part.begin)).unwrap_or_default();
    if !p.has('P') {
        if p.has('v') {
            text += &format!("total estimated size is {total}\n");
        }
        return text;
    }
    for (part, bytes) in plan.parts.iter().zip(parts.iter().skip(1)) {
        let base = part.base.as_deref().map(|base| base.rsplit(['@', '#']).next().unwrap_or(base));
        let size = bytes.len();
        text += &match base {
            Some(base) => format!("incremental\t{base}\t{}\t{size}\n", part.to),
            None => format!("full\t{}\t{size}\n", part.to),
        };
    }
    if p.value('t').is_none() {
        text += &format!("size\t{total}\n");
    }
    text
}

/// What a token says, as a list of names and values.
fn contents(begin: &Begin) -> String {
    let (at, guid) = (begin.resume.unwrap_or_default(), begin.guid);
    let from = begin.from.map(|from| format!("\tfromguid = {from:#x}\n")).unwrap_or_default();
    format!(
        "resume token contents:\nnvlist version: 0\n{from}\tobject = {at:#x}\n\toffset = 0x0\n\tbytes = {at:#x}\n\ttoguid = {guid:#x}\n\ttoname = {}@{}\n",
        begin.dataset, begin.snapshot
    )
}

fn failing(outgoing: Outgoing, fault: Fault) -> Outgoing {
    let Outgoing { mut bytes, then } = outgoing;
    let at = usize::try_from(fault.after).unwrap_or(usize::MAX);
    if at >= bytes.len() {
        return Outgoing { bytes, then };
    }
    if fault.effect == Effect::Flips {
        bytes[at] ^= 0x10;
        return Outgoing { bytes, then };
    }
    bytes.truncate(at);
    let then = match fault.effect {
        Effect::Hangs => Then::Hangs,
        _ => Then::Ends(1, "warning: cannot send: I/O error".to_string()),
    };
    Outgoing { bytes, then }
}
