// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `zfs get`. Sizes are those of this moment. Numbers are always exact, as with `-p`. A text with tabs or
//! line ends is printed with them.

use super::rows::{Chosen, chosen};
use super::values::{Values, is_unknown};
use crate::getopt::{Failed, Parsed, Said};
use crate::node::Node;
use crate::properties::Sourced;

const USAGE: &str = "usage: get [-rHp] [-d max] [-o field[,...]] [-s source[,...]] [-t type[,...]] \
                     property[,...] [filesystem|volume|snapshot] ...";
/// What `all` shows.
const ALL: &str = "type,creation,used,available,referenced,origin,mounted,quota,reservation,recordsize,\
                   mountpoint,compression,readonly,zoned,canmount,refquota,refreservation,guid,\
                   usedbysnapshots,volsize,userrefs,written";

pub(super) fn get(node: &Node, args: &[String]) -> Result<Said, Failed> {
    let usage = |what: String| Failed(2, format!("{what}\n{USAGE}"));
    let p = Parsed::read(args, "rHp", "dost").map_err(usage)?;
    let [keys, names @ ..] = p.operands.as_slice() else {
        return Err(usage("missing property argument".to_string()));
    };
    let is_all = keys == "all";
    let all_keys = ALL.replace(' ', "");
    let keys: Vec<&str> = if is_all { &all_keys } else { keys.as_str() }.split(',').collect();
    if let Some(key) = keys.iter().find(|key| !is_all && is_unknown(node, key)) {
        return Err(usage(format!("bad property list: invalid property '{key}'")));
    }
    let fields: Vec<&str> =
        p.value('o').unwrap_or("name,property,value,source").split(',').collect();
    let sources: Option<Vec<&str>> = p.value('s').map(|sources| sources.split(',').collect());
    let all = node.datasets()?;
    let values = Values::now(node, &all);
    let Chosen { rows, mut said } = chosen(&all, names, &p, p.value('t'))?;
    if !p.has('H') {
        said.stdout = fields.join("\t").to_uppercase() + "\n";
    }
    for row in rows {
        let own = if is_all { all.user_properties(row) } else { Vec::new() };
        for key in keys.iter().copied().chain(own.iter().map(String::as_str)) {
            let Sourced { value, source } = values.of(row, key)?;
            // Of all properties, those that it has.
            if is_all && value == "-" && source == "-" {
                continue;
            }
            let word = source.split(' ').next().unwrap_or_default();
            let word = if word == "-" { "none" } else { word };
            if sources.as_ref().is_some_and(|wanted| !wanted.contains(&word)) {
                continue;
            }
            let shown = fields.iter().map(|field| match *field {
                "name" => row.name.as_str(),
                "property" => key,
                "value" => &value,
                "source" => &source,
                _ => "-",
            });
            said.stdout += &(shown.collect::<Vec<_>>().join("\t") + "\n");
        }
    }
    Ok(said)
}
