// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `changes`: what the feed has of a VM, and where it is not complete.

use daemon::cli::{Cell, Layout, Screen, Table, Tone, UnknownColumn};
use jiff::Timestamp;
use sdc_clients::fleet::{Kind, Message};
use serde_json::Value;

use crate::names::Names;

const COLUMNS: [&str; 7] = ["time", "node", "what", "state", "changed", "seq", "event"];
const USUAL: usize = 5;

/// Lists the messages, oldest first.
pub(crate) fn list(
    found: &[(Timestamp, Message)],
    names: &Names,
    layout: &Layout,
    screen: Screen,
) -> Result<String, UnknownColumn> {
    let mut table = Table::new(&COLUMNS).usually(USUAL);
    for (at, message) in found {
        let line: Value = serde_json::from_slice(&message.body).unwrap_or_default();
        let paths = line["changes"].as_array().into_iter().flatten();
        let paths: Vec<&str> = paths.filter_map(|it| it["prettyPath"].as_str()).collect();
        let what: Cell = match (message.labels.kind, message.labels.compared) {
            (Kind::Resync, _) => {
                Cell::toned("what happened before is not completely known", Tone::Odd)
            }
            (kind, true) => {
                Cell::toned(format!("{} (found by comparison)", kind.name()), Tone::Odd)
            }
            (kind, false) => kind.name().into(),
        };
        table.row(vec![
            format!("{at:.3}").into(),
            names.node(&message.target.cn).into(),
            what,
            line["vm"]["state"].clone().into(),
            paths.join(", ").into(),
            message.seq.into(),
            message.labels.at.to_string().into(),
        ]);
    }
    table.print(layout, screen)
}
