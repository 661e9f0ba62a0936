// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is printed of packages. Pure.

use daemon::cli::{Cell, Layout, Screen, Table, Tone, UnknownColumn};
use serde_json::Value;

/// MiB in a GiB.
const GIB: u64 = 1024;

/// Returns the size in MiB of a size with its unit: `10G`, `1T`.
pub(super) fn mebibytes(size: &str) -> Option<u64> {
    let (number, unit) = match size.strip_suffix('T') {
        Some(number) => (number, GIB * GIB),
        None => (size.strip_suffix('G')?, GIB),
    };
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse::<u64>().ok().filter(|_| is_number)?.checked_mul(unit).filter(|size| *size > 0)
}

/// Returns the packages as a table.
pub(super) fn table(
    packages: &[Value],
    layout: &Layout,
    screen: Screen,
) -> Result<String, UnknownColumn> {
    const COLUMNS: [&str; 9] = [
        "name",
        "size",
        "active",
        "uuid",
        "description",
        "type",
        "owner_uuids",
        "compute_package_uuid",
        "created_at",
    ];
    let mut table = Table::new(&COLUMNS).usually(5);
    for package in packages {
        table.row(COLUMNS.iter().map(|column| cell(column, &package[*column])).collect());
    }
    table.print(layout, screen)
}

fn cell(column: &str, value: &Value) -> Cell {
    match (column, value) {
        ("size", Value::Number(size)) if size.as_u64().is_some_and(|size| size % GIB == 0) => {
            let gib = size.as_u64().unwrap_or_default() / GIB;
            Cell::shown(value.clone(), format!("{gib}G"))
        }
        ("active", Value::Bool(active)) => {
            Cell::toned(value.clone(), if *active { Tone::Good } else { Tone::Odd })
        }
        _ => value.clone().into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PLAIN: Screen = Screen { is_terminal: false, colour: false };

    #[test] // V121
    fn sizes_have_a_unit() {
        for (text, expected) in [
            ("10G", Some(10_240)),
            ("1T", Some(1_048_576)),
            ("10", None),
            ("10240M", None),
            ("0G", None),
            ("+1G", None),
            ("1.5G", None),
            ("G", None),
            ("99999999999999999999G", None),
        ] {
            assert_eq!(mebibytes(text), expected, "{text}");
        }
    }

    #[test] // V121
    fn packages_are_a_table_as_everywhere() {
        let package = json!({"uuid": "u", "name": "nfs1-10g", "size": 10240, "active": false,
            "description": "a:b", "type": "tritonnfs", "created_at": "2026-01-01T00:00:00.000Z"});
        let print = |layout: Layout| table(std::slice::from_ref(&package), &layout, PLAIN).unwrap();
        assert_eq!(
            print(Layout::default()),
            "NAME      SIZE  ACTIVE  UUID  DESCRIPTION\nnfs1-10g  10G   false   u     a:b\n"
        );
        let columns = Some("description,size,owner_uuids".to_owned());
        let parsable = Layout { parsable: true, columns, ..Layout::default() };
        assert_eq!(print(parsable), "a\\:b:10G:\n");
        let columns = Some("size".to_owned());
        let json = Layout { json: true, columns, ..Layout::default() };
        assert_eq!(print(json), "[\n  {\n    \"size\": 10240\n  }\n]\n");
    }
}
