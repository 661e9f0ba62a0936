// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where migration-service answers one exchange otherwise than the recorded VMAPI on purpose: a file with a row each,
//! which has the exchange's id, our reply and the defect of the real one. What is meant for more is a rule.

use std::collections::HashMap;

use anyhow::Context;
use serde::Deserialize;
use serde_json::Value;

use crate::conform::reply::Response;

const FILE: &str = include_str!("../../../fixtures/vmapi-deviations.jsonl");

/// A row.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    id: String,
    /// Our status.
    status: u16,
    /// What the body has; more may be there.
    #[serde(default)]
    body: Value,
    /// The defect of the real one.
    pub(super) defect: String,
}

/// Reads the file.
pub(super) fn read() -> anyhow::Result<HashMap<String, Row>> {
    let mut rows = HashMap::new();
    for line in FILE.lines() {
        let row: Row = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let id = row.id.clone();
        anyhow::ensure!(rows.insert(id.clone(), row).is_none(), "two rows for {id}");
    }
    Ok(rows)
}

impl Row {
    /// Compares an answer with the row.
    pub(super) fn check(&self, got: Option<&Response>) -> Result<(), String> {
        let status = got.map(|got| got.status);
        if status != Some(self.status) {
            let body = got.map(|got| String::from_utf8_lossy(&got.body)).unwrap_or_default();
            return Err(format!("the row expects {:?}, got {status:?} {body}", self.status));
        }
        let body = got.and_then(Response::json).unwrap_or_default();
        if !has(&body, &self.body) {
            return Err(format!("the row expects {}, got {body}", self.body));
        }
        Ok(())
    }
}

/// Returns true if everything in `want` is in `got`.
fn has(got: &Value, want: &Value) -> bool {
    match (got, want) {
        (_, Value::Null) => true,
        (Value::Object(got), Value::Object(want)) => {
            want.iter().all(|(name, want)| got.get(name).is_some_and(|got| has(got, want)))
        }
        (Value::Array(got), Value::Array(want)) => {
            got.len() == want.len() && got.iter().zip(want).all(|(got, want)| has(got, want))
        }
        _ => got == want,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_is_checked_in_what_it_says() {
        let body = json!({"code": "A", "list": [{"x": 1, "y": 2}]});
        for (want, is_met) in [
            (json!({"code": "A"}), true),
            (json!({"list": [{"y": 2}]}), true),
            (json!({"list": []}), false),
            (json!({"code": "B"}), false),
            (json!({"other": 1}), false),
        ] {
            assert_eq!(has(&body, &want), is_met, "{want}");
        }
    }
}
