// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `zfs list`: what each property is, as it is. A text with tabs or line ends is printed with them.

use super::rows::{Chosen, chosen};
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
    let kinds = p.value('t').unwrap_or("filesystem,volume");
    let all = node.datasets()?;
    let Chosen { rows, mut said } = chosen(&all, &p.operands, &p, Some(kinds))?;
    if !p.has('H') {
        said.stdout = columns.join("\t").to_uppercase() + "\n";
    }
    for row in rows {
        let fields: Vec<&str> = columns.iter().map(|column| row.get(column)).collect();
        said.stdout += &(fields.join("\t") + "\n");
    }
    Ok(said)
}
