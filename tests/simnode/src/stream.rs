// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The format of `zfs send` on a simulated node: frames of a kind, a length, a payload and the
//! checksum of everything since the snapshot began. The same contents give the same bytes. Pure.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::checksum::Checksum;
use crate::trees::Change;

/// The longest payload. No frame of ours comes near; a damaged length mostly does.
const LONGEST: usize = 1 << 24;
const VERSION: u32 = 1;
/// Kind, length and checksum of a frame.
const AROUND: usize = 1 + 4 + 8;

/// What is in a stream of several snapshots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Package {
    version: u32,
    /// The first dataset on the sender.
    pub top: String,
    /// Sent with `-R`: snapshots and datasets that are not listed are gone.
    pub replicate: bool,
    /// It begins after a snapshot.
    pub incremental: bool,
    /// The datasets, parents first.
    pub filesystems: Vec<Packed>,
}

/// One dataset of a package.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Packed {
    /// Its name below the first one: empty, or `/child`.
    pub path: String,
    /// Its own properties, where they are sent.
    pub props: Option<IndexMap<String, String>>,
    /// The numbers of its snapshots.
    pub snapshots: Vec<u64>,
}

/// The beginning of one snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    version: u32,
    /// The dataset on the sender.
    pub dataset: String,
    /// The snapshot's name.
    pub snapshot: String,
    /// The snapshot's number.
    pub guid: u64,
    /// The number of the snapshot that the changes are based on.
    pub from: Option<u64>,
    /// The base is the origin, which another dataset has.
    pub clone: bool,
    /// The size of a volume.
    pub volume: Option<u64>,
    /// When the snapshot was taken.
    pub creation: String,
    /// The snapshot's own properties, where they are sent.
    pub props: IndexMap<String, String>,
    /// The receiver has so many records of it.
    pub resume: Option<u64>,
    /// Sent as it is encrypted, with its key (`-w`).
    #[serde(default)]
    pub raw: bool,
}

impl Package {
    pub fn new(top: &str, replicate: bool, incremental: bool, filesystems: Vec<Packed>) -> Package {
        Package { version: VERSION, top: top.to_string(), replicate, incremental, filesystems }
    }
}

impl Begin {
    /// A full stream of one snapshot.
    pub fn new(dataset: &str, snapshot: &str, guid: u64) -> Begin {
        Begin {
            version: VERSION,
            dataset: dataset.to_string(),
            snapshot: snapshot.to_string(),
            guid,
            from: None,
            clone: false,
            volume: None,
            creation: String::new(),
            props: IndexMap::new(),
            resume: None,
            raw: false,
        }
    }
}

/// A part of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// What is in it; first, where there is one.
    Package(Package),
    /// A snapshot begins.
    Begin(Begin),
    /// Its contents differ from its base's by this.
    Change(Change),
    /// The snapshot is whole.
    End,
    /// The package is whole.
    Last,
}

/// Why a stream is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Bytes were changed.
    #[error("invalid stream (checksum mismatch)")]
    Checksum,
    /// No stream of this format.
    #[error("invalid stream (bad magic number)")]
    Format,
}

/// Writes records one after the other.
#[derive(Debug, Default)]
pub struct Encoder {
    sum: Checksum,
}

impl Encoder {
    /// The bytes of the next record.
    pub fn frame(&mut self, record: &Record) -> Vec<u8> {
        let (kind, payload) = payload(record);
        if matches!(record, Record::Package(_) | Record::Begin(_) | Record::Last) {
            self.sum = Checksum::default();
        }
        let mut frame = Vec::with_capacity(payload.len() + AROUND);
        frame.push(kind);
        frame.extend((payload.len() as u32).to_be_bytes());
        frame.extend(payload);
        self.sum.add(&frame);
        frame.extend(self.sum.value().to_be_bytes());
        frame
    }
}

fn payload(record: &Record) -> (u8, Vec<u8>) {
    let json = |value: serde_json::Value| value.to_string().into_bytes();
    let named = |path: &str| {
        let mut bytes = (path.len() as u32).to_be_bytes().to_vec();
        bytes.extend(path.as_bytes());
        bytes
    };
    match record {
        Record::Package(package) => (b'P', json(serde_json::json!(package))),
        Record::Begin(begin) => (b'B', json(serde_json::json!(begin))),
        Record::Change(Change::Remove(path)) => (b'x', named(path)),
        Record::Change(Change::Dir(path, mode)) => {
            (b'd', [named(path), mode.to_be_bytes().to_vec()].concat())
        }
        Record::Change(Change::File(path, mode, len)) => {
            (b'f', [named(path), mode.to_be_bytes().to_vec(), len.to_be_bytes().to_vec()].concat())
        }
        Record::Change(Change::Link(path, to)) => {
            (b'l', [named(path), to.clone().into_bytes()].concat())
        }
        Record::Change(Change::Data(path, at, block)) => {
            (b'w', [named(path), at.to_be_bytes().to_vec(), block.clone()].concat())
        }
        Record::End => (b'E', Vec::new()),
        Record::Last => (b'Z', Vec::new()),
    }
}

fn record(kind: u8, payload: &[u8]) -> Option<Record> {
    fn four(bytes: &[u8]) -> Option<(u32, &[u8])> {
        let (head, rest) = bytes.split_first_chunk::<4>()?;
        Some((u32::from_be_bytes(*head), rest))
    }
    fn eight(bytes: &[u8]) -> Option<(u64, &[u8])> {
        let (head, rest) = bytes.split_first_chunk::<8>()?;
        Some((u64::from_be_bytes(*head), rest))
    }
    fn named(bytes: &[u8]) -> Option<(String, &[u8])> {
        let (len, rest) = four(bytes)?;
        let (path, rest) = rest.split_at_checked(len as usize)?;
        let path = std::str::from_utf8(path).ok()?;
        let inside = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
        inside.then(|| (path.to_string(), rest))
    }
    Some(match kind {
        b'P' => {
            let package: Package = serde_json::from_slice(payload).ok()?;
            Record::Package(Some(package).filter(|package| package.version == VERSION)?)
        }
        b'B' => {
            let begin: Begin = serde_json::from_slice(payload).ok()?;
            Record::Begin(Some(begin).filter(|begin| begin.version == VERSION)?)
        }
        b'x' => Record::Change(Change::Remove(named(payload)?.0)),
        b'd' => {
            let (path, rest) = named(payload)?;
            Record::Change(Change::Dir(path, four(rest)?.0))
        }
        b'f' => {
            let (path, rest) = named(payload)?;
            let (mode, rest) = four(rest)?;
            Record::Change(Change::File(path, mode, eight(rest)?.0))
        }
        b'l' => {
            let (path, to) = named(payload)?;
            Record::Change(Change::Link(path, String::from_utf8(to.to_vec()).ok()?))
        }
        b'w' => {
            let (path, rest) = named(payload)?;
            let (at, block) = eight(rest)?;
            Record::Change(Change::Data(path, at, block.to_vec()))
        }
        b'E' => Record::End,
        b'Z' => Record::Last,
        _ => return None,
    })
}

/// Reads records from pieces of a stream.
#[derive(Debug, Default)]
pub struct Decoder {
    unread: Vec<u8>,
    sum: Checksum,
}

impl Decoder {
    /// Adds the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// Returns true if all bytes were records.
    pub fn is_at_end(&self) -> bool {
        self.unread.is_empty()
    }

    /// The next record that is there as a whole.
    pub fn take(&mut self) -> Result<Option<Record>, Damage> {
        let Some(([kind, len @ ..], _)) = self.unread.split_first_chunk::<5>() else {
            return Ok(None);
        };
        let (kind, len) = (*kind, u32::from_be_bytes(*len) as usize);
        if !b"PBxdflwEZ".contains(&kind) || len > LONGEST {
            return Err(Damage::Format);
        }
        let Some(frame) = self.unread.get(..len + AROUND) else { return Ok(None) };
        let (body, sent) = frame.split_at(len + 5);
        if b"PBZ".contains(&kind) {
            self.sum = Checksum::default();
        }
        self.sum.add(body);
        if sent != self.sum.value().to_be_bytes() {
            return Err(Damage::Checksum);
        }
        let record = record(kind, body.get(5..).unwrap_or_default()).ok_or(Damage::Format)?;
        self.unread.drain(..len + AROUND);
        Ok(Some(record))
    }
}
