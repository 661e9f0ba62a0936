// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `zfs list`: what each property is at this moment, but `written` and `usedbysnapshots` as they are stored. A text
//! with tabs or line ends is printed with them.

use super::rows::{Chosen, chosen};
use super::values::{Values, is_unknown};
use crate::getopt::{Failed, Parsed, Said};
use crate::node::{Node, Zfs};

const USAGE: &str = "usage: list [-rH][-d max] [-o property[,...]] [-t type[,...]] [-s property] ... \
                     [filesystem|volume|snapshot] ...";

pub(super) fn list(node: &Node, args: &[String]) -> Result<Said, Failed> {
    let plain = if node.info().zfs == Zfs::Fuse { "Hr" } else { "Hpr" };
    let p =
        Parsed::read(args, plain, "dtosS").map_err(|what| Failed(2, format!("{what}\n{USAGE}")))?;
    let columns: Vec<&str> =
        p.value('o').unwrap_or("name,used,available,refer,mountpoint").split(',').collect();
    if let Some(key) = columns.iter().find(|key| **key != "name" && is_unknown(node, key)) {
        return Err(Failed(2, format!("bad property list: invalid property '{key}'\n{USAGE}")));
    }
    let kinds = p.value('t').unwrap_or("filesystem,volume");
    let all = node.datasets()?;
    let Chosen { rows, mut said } = chosen(&all, &p.operands, &p, Some(kinds))?;
    if !p.has('H') {
        said.stdout = columns.join("\t").to_uppercase() + "\n";
    }
    let values = Values::now(node, &all);
    for row in rows {
        let of = |column: &&str| match *column {
            "name" => Ok(row.name.clone()),
            // Measuring reads every file of a dataset, which zfs does not: vminfod lists these of all datasets often.
            "written" | "usedbysnapshots" => Ok(row.get(column).to_owned()),
            column => values.of(row, column).map(|property| property.value),
        };
        let fields = columns.iter().map(of).collect::<Result<Vec<_>, _>>()?;
        said.stdout += &(fields.join("\t") + "\n");
    }
    Ok(said)
}
