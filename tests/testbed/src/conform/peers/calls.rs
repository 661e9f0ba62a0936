// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The recorded calls.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::Value;

/// One recorded call.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Call {
    pub(super) peer: String,
    pub(super) method: String,
    pub(super) url: String,
    #[serde(default)]
    pub(super) body: Value,
    /// None: the call was under way when the recorder looked.
    pub(super) status: Option<u16>,
    /// Absent: it was not recorded.
    pub(super) response: Option<Value>,
}

/// The calls by the id of an exchange: those for it, and those of the updater before it.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) of: BTreeMap<String, Vec<Call>>,
    pub(super) before: BTreeMap<String, Vec<Call>>,
}

#[derive(Deserialize)]
struct Line {
    id: Option<String>,
    updater_before: Option<String>,
    calls: Vec<Call>,
}

/// Reads the recorded calls.
pub(super) fn read(path: &Path) -> anyhow::Result<Calls> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut calls = Calls::default();
    for line in text.lines() {
        let line: Line = serde_json::from_str(line).context("a line of recorded calls")?;
        match (line.id, line.updater_before) {
            (Some(id), _) => calls.of.entry(id).or_default().extend(line.calls),
            (None, Some(id)) => calls.before.entry(id).or_default().extend(line.calls),
            (None, None) => anyhow::bail!("calls of no exchange"),
        }
    }
    Ok(calls)
}
