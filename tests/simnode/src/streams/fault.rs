// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Streams that fail on purpose: a setting of the node, so that executables do it too.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::NodeError;
use crate::files;
use crate::node::Node;

/// The end of a stream at which it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// `zfs send`.
    Send,
    /// `zfs receive`.
    Receive,
}

/// How it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// The command ends with status 1, as if it had been killed.
    Ends,
    /// One bit of the next byte is changed.
    Flips,
    /// The command does nothing more and does not end.
    Hangs,
    /// The pool is full.
    NoSpace,
}

/// A fault of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub end: End,
    /// After so many bytes.
    pub after: u64,
    pub effect: Effect,
}

impl Node {
    fn faults_file(&self) -> PathBuf {
        self.state_dir().join("stream-faults.json")
    }

    fn stream_faults(&self) -> Result<Vec<Fault>, NodeError> {
        let file = self.faults_file();
        if file.exists() { files::read_json(&file) } else { Ok(Vec::new()) }
    }

    /// Makes the next stream of this node fail; further ones queue up.
    pub fn fail_stream(&self, end: End, after: u64, effect: Effect) -> Result<(), NodeError> {
        let _lock = self.lock()?;
        let mut faults = self.stream_faults()?;
        faults.push(Fault { end, after, effect });
        files::write_json(&self.faults_file(), &json!(faults))
    }

    /// The fault of a stream that starts now.
    pub(crate) fn take_stream_fault(&self, end: End) -> Result<Option<Fault>, NodeError> {
        if !self.faults_file().exists() {
            return Ok(None);
        }
        let _lock = self.lock()?;
        let mut faults = self.stream_faults()?;
        let Some(at) = faults.iter().position(|fault| fault.end == end) else { return Ok(None) };
        let fault = faults.remove(at);
        files::write_json(&self.faults_file(), &json!(faults))?;
        Ok(Some(fault))
    }
}
