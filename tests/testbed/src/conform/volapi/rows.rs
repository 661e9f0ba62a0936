// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where ours answers one exchange otherwise on purpose: `volapi.deviations.jsonl`, one row for each with our
//! answer and the defect of the real service that is not copied. What is meant for more is a rule.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::Value;

const FILE: &str = include_str!("volapi.deviations.jsonl");

/// One row.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Row {
    id: String,
    /// Our status; absent where the answer is as recorded.
    pub(super) status: Option<u16>,
    /// Our body, with the recorded values where ours differ from run to run.
    #[serde(default)]
    pub(super) body: Value,
    /// Our calls differ, too.
    #[serde(default)]
    pub(super) calls: bool,
    /// The defect of the real service that is not copied.
    #[allow(dead_code)] // for the reader of the file; that it is there is checked
    why: String,
}

/// Reads the rows, by the id of the exchange.
pub(super) fn read() -> anyhow::Result<BTreeMap<String, Row>> {
    let mut rows = BTreeMap::new();
    for line in FILE.lines().filter(|line| !line.is_empty()) {
        let row: Row = serde_json::from_str(line).with_context(|| line.to_owned())?;
        anyhow::ensure!(!row.why.is_empty(), "row {} says no defect", row.id);
        let id = row.id.clone();
        anyhow::ensure!(rows.insert(id.clone(), row).is_none(), "{id} has two rows");
    }
    Ok(rows)
}
