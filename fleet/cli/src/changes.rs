// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `changes`: what the feed has of a VM, and where it is not complete.

use std::collections::BTreeMap;

use daemon::cli::{Cell, Layout, Screen, Table, Tone, UnknownColumn};
use jiff::Timestamp;
use sdc_clients::fleet::{Kind, Line, Message, Target};
use serde_json::Value;

use crate::names::Names;

/// What the table has; the usual columns first.
pub(crate) const COLUMNS: [&str; 7] = ["time", "node", "what", "state", "changed", "seq", "event"];
const USUAL: usize = 5;

/// Lists the messages, oldest first.
pub(crate) fn list(
    found: &[(Timestamp, Message)],
    names: &Names,
    layout: &Layout,
    screen: Screen,
) -> Result<String, UnknownColumn> {
    let mut table = Table::new(&COLUMNS).usually(USUAL);
    let mut last = BTreeMap::new();
    for (at, message) in found {
        if lacks_one(&mut last, message) {
            table.row(vec![
                format!("{at:.3}").into(),
                names.node(&message.target.cn).into(),
                Cell::toned("a change before the next one was lost by the servers", Tone::Odd),
                Value::Null.into(),
                Value::Null.into(),
                Value::Null.into(),
                Value::Null.into(),
            ]);
        }
        let line = Line::of(message);
        let paths: Vec<&str> = line.changes.iter().map(|it| it.pretty_path.as_str()).collect();
        let state = line.vm.as_ref().and_then(|vm| vm.get("state")).cloned();
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
            state.unwrap_or_default().into(),
            paths.join(", ").into(),
            message.seq.into(),
            message.labels.at.to_string().into(),
        ]);
    }
    table.print(layout, screen)
}

/// Returns whether a message of the VM before this one never came. Nothing has to be before the first one.
fn lacks_one(last: &mut BTreeMap<Target, u64>, message: &Message) -> bool {
    let before = last.insert(message.target.clone(), message.seq);
    before.is_some_and(|before| message.behind > before)
}

#[cfg(test)]
mod tests {
    use sdc_clients::fleet::{Labels, Position};

    use super::*;

    #[test]
    fn a_change_that_the_servers_lost_has_a_row_of_its_own() {
        // N10
        let message = |(seq, behind)| {
            let target = Target { cn: "cn".into(), vm: Some("vm".into()) };
            let at = Position { epoch: "e".into(), seq };
            let labels = Labels::of(Kind::Modify, at);
            (Timestamp::UNIX_EPOCH, Message { target, labels, seq, behind, body: "{}".into() })
        };
        let (layout, screen) = (Layout::default(), Screen { is_terminal: false, colour: false });
        let lines = |all: &[(u64, u64)]| {
            let found: Vec<_> = all.iter().copied().map(message).collect();
            let printed = list(&found, &Names::of(&[]), &layout, screen).unwrap();
            printed.lines().filter(|line| line.contains("was lost")).count()
        };
        assert_eq!(lines(&[(4, 2), (7, 4), (9, 7)]), 0);
        assert_eq!(lines(&[(4, 2), (9, 7)]), 1);
    }
}
