// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `streams`: how the streams of the feed are, whether `VMS` moves and has room, whether the servers have the same, and
//! whether a server may be stopped; with `--nodes` how much of them each node has.

use std::collections::BTreeMap;

use daemon::cli::{Cell, Layout, Screen, Table, Tone, UnknownColumn};
use sdc_clients::fleet::{Health, Usage};
use serde_json::Value;

use crate::names::Names;

/// What the table has; the usual columns first.
pub(crate) const COLUMNS: [&str; 7] =
    ["stream", "messages", "bytes", "leader", "behind", "lag", "differ"];

/// What the table of the nodes has.
pub(crate) const OF_NODES: [&str; 7] =
    ["node", "vms", "messages", "vms_bytes", "bytes", "share", "uuid"];
const USUAL: usize = 6;
/// A node that has more of a stream than that, in per cent, and more than all others do on average.
const MUCH: u64 = 50;

/// How many messages of a stream the servers do not have alike.
pub(crate) type Differ = BTreeMap<&'static str, usize>;

/// Lists what each node has of the streams, those with the largest share first.
pub(crate) fn nodes(
    all: &[Usage],
    names: &Names,
    layout: &Layout,
    screen: Screen,
) -> Result<String, UnknownColumn> {
    let mut table = Table::new(&OF_NODES).usually(USUAL);
    for it in all {
        let is_much = all.len() > 1 && it.share >= MUCH;
        table.row(vec![
            names.node(&it.cn).into(),
            it.vms.messages.into(),
            it.changes.messages.into(),
            it.vms.bytes.into(),
            it.changes.bytes.into(),
            match is_much {
                true => Cell::toned(format!("{} %", it.share), Tone::Bad),
                false => format!("{} %", it.share).into(),
            },
            it.cn.as_str().into(),
        ]);
    }
    table.print(layout, screen)
}

/// Lists the streams; returns whether every server has all of them, and the same, and `VMS` moves and has room.
pub(crate) fn list(
    all: &[Health],
    differ: &Differ,
    stands_still: bool,
    layout: &Layout,
    screen: Screen,
) -> Result<(String, bool), UnknownColumn> {
    let mut table = Table::new(&COLUMNS);
    for health in all {
        let lag = match stands_still && health.lag > 0 {
            true => Cell::toned(format!("{} (stands still)", health.lag), Tone::Bad),
            false => health.lag.into(),
        };
        let differ = match differ.get(health.stream) {
            Some(0) | None => Value::Null.into(),
            Some(count) => Cell::toned(count.to_string(), Tone::Bad),
        };
        table.row(row(health, lag, differ));
    }
    let is_whole = all.iter().all(Health::is_whole);
    let is_one = differ.values().all(|count| *count == 0);
    let has_room = !all.iter().any(|health| health.full);
    Ok((table.print(layout, screen)?, is_whole && is_one && has_room && !stands_still))
}

/// Lists the streams while some have no leader that answers: of those nothing but the reason is known, and of the others
/// neither what `VMS` lacks nor whether the servers have the same.
pub(crate) fn list_led(
    all: &[(&'static str, Result<Health, String>)],
    layout: &Layout,
    screen: Screen,
) -> Result<String, UnknownColumn> {
    let mut table = Table::new(&COLUMNS);
    let unknown = || Cell::from(Value::Null);
    for (stream, health) in all {
        table.row(match health {
            Ok(health) => row(health, unknown(), unknown()),
            Err(why) => {
                let leader = Cell::toned(format!("none ({why})"), Tone::Bad);
                let [messages, bytes, behind, lag, differ] = [(); 5].map(|()| unknown());
                vec![(*stream).into(), messages, bytes, leader, behind, lag, differ]
            }
        });
    }
    table.print(layout, screen)
}

fn row(health: &Health, lag: Cell, differ: Cell) -> Vec<Cell> {
    vec![
        health.stream.into(),
        health.messages.into(),
        match health.full {
            true => Cell::toned(format!("{} (full)", health.bytes), Tone::Bad),
            false => health.bytes.into(),
        },
        health.leader.as_deref().into(),
        match health.is_whole() {
            true => Value::Null.into(),
            false => Cell::toned(behind(health), Tone::Bad),
        },
        lag,
        differ,
    ]
}

/// The servers that do not have all of it, by name, and how many more there should be.
fn behind(health: &Health) -> String {
    let away = health.away.iter().map(|server| format!("{server} (away)"));
    let few = (health.too_few > 0).then(|| format!("{} too few", health.too_few));
    health.behind.iter().cloned().chain(away).chain(few).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use sdc_clients::fleet::{CHANGES, VMS};

    use super::*;

    #[test]
    fn a_stream_without_a_leader_has_its_row_beside_the_others() {
        let health = Health {
            stream: CHANGES,
            messages: 7,
            bytes: 700,
            leader: Some("n1".to_owned()),
            behind: Vec::new(),
            away: vec!["n2".to_owned()],
            too_few: 0,
            lag: 0,
            full: true,
        };
        let layout = Layout { parsable: true, ..Layout::default() };
        let all = [(CHANGES, Ok(health)), (VMS, Err("timed out".to_owned()))];
        let text = list_led(&all, &layout, Screen::default()).unwrap();
        assert_eq!(text, "CHANGES:7:700 (full):n1:n2 (away)::\nVMS:::none (timed out):::\n");
    }
}
