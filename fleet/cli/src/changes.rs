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

/// What a message tells, or that there should be one.
pub(crate) struct Told<'a> {
    pub(crate) at: Timestamp,
    pub(crate) cn: &'a str,
    pub(crate) what: String,
    /// It is no event.
    pub(crate) is_odd: bool,
    /// The state afterwards.
    state: Value,
    /// The paths of what changed.
    changed: String,
    event: Option<&'a Message>,
}

impl Told<'_> {
    /// The state, and what changed.
    pub(crate) fn details(&self) -> String {
        let said = [self.state.as_str().unwrap_or_default(), &self.changed];
        said.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(": ")
    }
}

/// Reads the messages, in their order.
pub(crate) fn told(found: &[(Timestamp, Message)]) -> Vec<Told<'_>> {
    let (mut all, mut last) = (Vec::new(), BTreeMap::new());
    for (at, message) in found {
        let (at, cn) = (*at, message.target.cn.as_str());
        if lacks_one(&mut last, message) {
            let what = "a change before the next one was lost by the servers".to_owned();
            let (state, changed) = (Value::Null, String::new());
            all.push(Told { at, cn, what, is_odd: true, state, changed, event: None });
        }
        let line = Line::of(message);
        let paths: Vec<&str> = line.changes.iter().map(|it| it.pretty_path.as_str()).collect();
        let state = line.vm.as_ref().and_then(|vm| vm.get("state")).cloned().unwrap_or_default();
        let (what, is_odd) = match (message.labels.kind, message.labels.compared) {
            (Kind::Resync, _) => ("what happened before is not completely known".to_owned(), true),
            (kind, true) => (format!("{} (found by comparison)", kind.name()), true),
            (kind, false) => (kind.name().to_owned(), false),
        };
        let changed = paths.join(", ");
        all.push(Told { at, cn, what, is_odd, state, changed, event: Some(message) });
    }
    all
}

/// Lists the messages, oldest first.
pub(crate) fn list(
    found: &[(Timestamp, Message)],
    names: &Names,
    layout: &Layout,
    screen: Screen,
) -> Result<String, UnknownColumn> {
    let mut table = Table::new(&COLUMNS).usually(USUAL);
    for it in told(found) {
        table.row(vec![
            format!("{:.3}", it.at).into(),
            names.node(it.cn).into(),
            if it.is_odd { Cell::toned(it.what, Tone::Odd) } else { it.what.into() },
            it.state.into(),
            it.event.map(|_| it.changed).into(),
            it.event.map(|message| message.seq).map_or(Value::Null, Value::from).into(),
            it.event.map(|message| message.labels.at.to_string()).into(),
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
