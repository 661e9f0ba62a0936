// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where the mocks answer otherwise than the recorded service on purpose: a file with a row each, which says for
//! which requests, what is answered instead, and why. A row has an id where one exchange alone is meant.

use anyhow::Context;
use mocks::faults::glob;
use serde::Deserialize;

use crate::conform::transcript::Exchange;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    kind: String,
    id: Option<String>,
    method: Option<String>,
    /// A `*` stands for any text, here and in the query.
    path: Option<String>,
    query: Option<String>,
    /// Our status; none: the connection closes.
    status: Option<u16>,
    reason: String,
    #[serde(skip)]
    used: usize,
}

/// The rows of one kind.
#[derive(Debug)]
pub(crate) struct Rules(Vec<Row>);

impl Rules {
    pub(super) fn read(text: &str, kind: &str) -> anyhow::Result<Rules> {
        let mut rows = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let row: Row = serde_json::from_str(line).with_context(|| line.to_owned())?;
            anyhow::ensure!(!row.reason.is_empty(), "a row says no reason: {line}");
            rows.push(row);
        }
        rows.retain(|row| row.kind == kind);
        // What is meant for one exchange goes before what is meant for many.
        rows.sort_by_key(|row| row.id.is_none());
        Ok(Rules(rows))
    }

    /// Returns what is wrong with an answer that differs, or does not, from the recorded one.
    pub(super) fn judge(
        &mut self,
        one: &Exchange,
        status: Option<u16>,
        difference: Option<String>,
    ) -> Option<String> {
        let row = self.0.iter_mut().find(|row| row.covers(one));
        match (row, difference) {
            (None, difference) => difference,
            (Some(row), None) if row.id.is_some() => {
                row.used += 1;
                Some(format!("it deviates no more: {}", row.reason))
            }
            (Some(_), None) => None,
            (Some(row), Some(_)) if row.status == status => {
                row.used += 1;
                None
            }
            (Some(row), Some(difference)) => {
                row.used += 1;
                Some(format!("{difference}\n  which is more than: {}", row.reason))
            }
        }
    }

    /// How many answers deviate, and the rows that nothing needs.
    pub(super) fn notes(&self) -> Vec<String> {
        let count: usize = self.0.iter().map(|row| row.used).sum();
        let idle = self.0.iter().filter(|row| row.used == 0);
        let idle = idle.map(|row| format!("a row is not needed: {}", row.reason));
        let said = format!("{count} exchanges are answered otherwise on purpose");
        std::iter::once(said).chain(idle).collect()
    }
}

impl Row {
    fn covers(&self, one: &Exchange) -> bool {
        let is = |pattern: &Option<String>, text: &str| {
            pattern.as_ref().is_none_or(|pattern| glob(pattern, text))
        };
        self.id.as_ref().is_none_or(|id| *id == one.id)
            && is(&self.method, &one.request.method)
            && is(&self.path, &one.request.path)
            && is(&self.query, &one.request.query)
    }
}
