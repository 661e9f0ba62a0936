// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is kept of an interrupted receive: a file with the records that arrived, and the token with
//! which the sender goes on. Each record is in the file before the next one is read, so a killed
//! receive loses none.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use crate::checksum::Checksum;
use crate::datasets::Datasets;
use crate::error::NodeError;
use crate::files;
use crate::node::Node;
use crate::receive_rules::PARTIAL;
use crate::stream::{Begin, Decoder, Encoder, Record};
use crate::trees::Change;

/// The records of one snapshot that have arrived.
pub(crate) struct Partial {
    path: PathBuf,
    file: File,
    encoder: Encoder,
}

fn path(node: &Node, dataset: &str) -> PathBuf {
    node.state_dir().join(format!("partial.{}", dataset.replace('/', "+")))
}

/// The whole records of a file, and their length in bytes.
fn records(bytes: &[u8]) -> (Vec<Record>, u64) {
    let mut decoder = Decoder::default();
    decoder.push(bytes);
    let mut records = Vec::new();
    let mut encoder = Encoder::default();
    let mut len = 0;
    while let Ok(Some(record)) = decoder.take() {
        len += encoder.frame(&record).len() as u64;
        records.push(record);
    }
    (records, len)
}

impl Partial {
    /// Begins a new one.
    pub(crate) fn begin(node: &Node, dataset: &str, begin: &Begin) -> Result<Partial, NodeError> {
        let path = path(node, dataset);
        let file = File::create(&path).map_err(|e| NodeError::io("create", &path, e))?;
        let mut partial = Partial { path, file, encoder: Encoder::default() };
        partial.add(&Record::Begin(begin.clone()))?;
        Ok(partial)
    }

    /// Goes on with one: it, the header, and the changes that it has.
    pub(crate) fn resume(
        node: &Node,
        dataset: &str,
    ) -> Result<Option<(Partial, Begin, Vec<Change>)>, NodeError> {
        let path = path(node, dataset);
        let Ok(bytes) = std::fs::read(&path) else { return Ok(None) };
        let (records, len) = records(&bytes);
        let mut encoder = Encoder::default();
        records.iter().for_each(|record| drop(encoder.frame(record)));
        let mut records = records.into_iter();
        let Some(Record::Begin(begin)) = records.next() else { return Ok(None) };
        let changes = records.filter_map(|record| match record {
            Record::Change(change) => Some(change),
            _ => None,
        });
        // The last record may be torn.
        let opened = File::options().append(true).open(&path);
        let file = opened.and_then(|file| file.set_len(len).map(|()| file));
        let file = file.map_err(|e| NodeError::io("open", &path, e))?;
        Ok(Some((Partial { path, file, encoder }, begin, changes.collect())))
    }

    /// Keeps a record.
    pub(crate) fn add(&mut self, record: &Record) -> Result<(), NodeError> {
        let frame = self.encoder.frame(record);
        self.file.write_all(&frame).map_err(|e| NodeError::io("write", &self.path, e))
    }

    pub(crate) fn remove(self) -> Result<(), NodeError> {
        files::remove_file(&self.path)
    }
}

impl Node {
    /// The token with which the sender goes on, where a receive was interrupted.
    pub fn resume_token(&self, all: &Datasets, dataset: &str) -> Option<String> {
        all.get(dataset).filter(|row| row.props.contains_key(PARTIAL))?;
        let (records, _) = records(&std::fs::read(path(self, dataset)).ok()?);
        let Some(Record::Begin(begin)) = records.first() else { return None };
        let mut at = begin.clone();
        at.resume = Some(records.len() as u64 - 1);
        Some(token(&at))
    }

    /// `zfs receive -A`: drops what was kept.
    pub(crate) fn abort_receive(&self, dataset: &str) -> Result<(), NodeError> {
        drop(self.receiving(dataset)?);
        self.zfs(|all| {
            let row = all.need(dataset)?;
            let Some(kind) = row.props.shift_remove(PARTIAL) else {
                let why = "does not have any resumable receive state to abort";
                return Err(NodeError::refused(format!("'{dataset}' {why}")));
            };
            if kind == "new" { all.destroy(dataset, true) } else { Ok(Vec::new()) }
        })?;
        files::remove_file(&path(self, dataset))
    }
}

/// The token of this place. As zfs's own it proves nothing: whoever knows the format makes one for any snapshot.
pub fn token(at: &Begin) -> String {
    let text = serde_json::json!(at).to_string();
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("1-{:x}-{:x}-{hex}", Checksum::of(text.as_bytes()), text.len())
}

/// Where a sender goes on, or `None` if the token is damaged.
pub(crate) fn read_token(token: &str) -> Option<Begin> {
    let mut parts = token.split('-');
    let (version, sum, len, hex) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let digits = hex
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    let text: Vec<u8> = digits.collect::<Option<_>>()?;
    let fits = version == "1"
        && parts.next().is_none()
        && u64::from_str_radix(sum, 16).ok()? == Checksum::of(&text)
        && usize::from_str_radix(len, 16).ok()? == text.len();
    let begin: Option<Begin> = serde_json::from_slice(&text).ok();
    begin.filter(|begin| fits && begin.resume.is_some())
}
