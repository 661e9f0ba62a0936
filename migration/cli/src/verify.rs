// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The two copies of a VM, compared. Pure.

use daemon::cli::{Cell, Layout, Screen, Table, Tone, UnknownColumn};
use sdc_clients::migrations::{Dataset, Verification};
use serde_json::Value;

use super::units;

/// The columns of a comparison.
pub(super) const COLUMNS: [&str; 6] =
    ["dataset", "result", "source_bytes", "target_bytes", "source_guid", "target_guid"];

/// Returns the table of a comparison.
/// Fails if a column that is asked for does not exist.
pub(super) fn table(
    compared: &Verification,
    layout: &Layout,
    screen: Screen,
) -> Result<String, UnknownColumn> {
    let mut table = Table::new(&COLUMNS).usually(4);
    let size = |count: Option<u64>| match count {
        Some(count) => Cell::shown(count, units::bytes(count)),
        None => Value::Null.into(),
    };
    for dataset in &compared.datasets {
        let (result, tone) = result(dataset);
        table.row(vec![
            dataset.name.as_str().into(),
            Cell::toned(result, tone),
            size(dataset.source_bytes),
            size(dataset.target_bytes),
            dataset.source_guid.as_deref().into(),
            dataset.target_guid.as_deref().into(),
        ]);
    }
    table.print(layout, screen)
}

fn result(dataset: &Dataset) -> (&'static str, Tone) {
    match (&dataset.source_guid, &dataset.target_guid) {
        (Some(source), Some(target)) if source == target => ("the same snapshot", Tone::Good),
        (Some(_), Some(_)) => ("another snapshot", Tone::Bad),
        (Some(_), None) => ("missing on the target", Tone::Bad),
        (None, Some(_)) => ("missing on the source", Tone::Bad),
        (None, None) => ("no snapshot", Tone::Bad),
    }
}

/// Returns the last sentence of a comparison.
pub(super) fn sentence(compared: &Verification) -> &'static str {
    match compared.equal {
        true => "The copies are equal",
        false => "The copies DIFFER: sync again before you switch or finalize",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn each_dataset_has_its_result() {
        let dataset = |name: &str, source: Option<&str>, target: Option<&str>| Dataset {
            name: name.into(),
            source_guid: source.map(Into::into),
            target_guid: target.map(Into::into),
            source_bytes: Some(2048),
            target_bytes: None,
        };
        let datasets = vec![
            dataset("a", Some("1"), Some("1")),
            dataset("b", Some("1"), Some("2")),
            dataset("c", Some("1"), None),
            dataset("d", None, Some("2")),
            dataset("e", None, None),
        ];
        let compared = Verification { datasets, ..Verification::default() };
        let screen = Screen { is_terminal: false, colour: false };
        let want = "\
DATASET  RESULT                 SOURCE_BYTES  TARGET_BYTES
a        the same snapshot      2.0KiB        -
b        another snapshot       2.0KiB        -
c        missing on the target  2.0KiB        -
d        missing on the source  2.0KiB        -
e        no snapshot            2.0KiB        -
";
        assert_eq!(table(&compared, &Layout::default(), screen).unwrap(), want);
        assert!(sentence(&compared).contains("DIFFER"));
    }
}
