// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `story`: one VM's life over its nodes, in one order, from what is stored already.

pub(crate) mod sources; // asks migration-service and the nodes

mod read; // what each source tells, pure

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use daemon::cli::{Cell, Layout, Screen, Table, UnknownColumn};
use jiff::Timestamp;

use self::read::Told;
pub(crate) use self::read::of_feed;
use crate::names::Names;

/// What the table has; the usual columns first.
pub(crate) const COLUMNS: [&str; 6] = ["time", "node", "source", "what", "details", "node_uuid"];
const USUAL: usize = 5;

/// Puts what the sources tell into one order. Clocks differ: what one source says stays in its order, whatever its clock
/// says, and times decide between sources; of one time the source that is named first is first.
fn merged(sources: Vec<Vec<Told>>) -> Vec<Told> {
    let mut all: Vec<VecDeque<Told>> = sources.into_iter().map(VecDeque::from).collect();
    std::iter::from_fn(|| {
        let waiting = all.iter_mut().filter(|it| !it.is_empty());
        waiting.min_by_key(|it| it.front().map(|told| told.at))?.pop_front()
    })
    .collect()
}

/// Lists what the sources tell, the oldest first.
pub(crate) fn list(
    sources: Vec<Vec<Told>>,
    since: Option<Timestamp>,
    names: &Names,
    layout: &Layout,
    screen: Screen,
) -> Result<String, UnknownColumn> {
    let mut table = Table::new(&COLUMNS).usually(USUAL);
    for it in merged(sources).into_iter().filter(|it| since.is_none_or(|since| since <= it.at)) {
        table.row(vec![
            format!("{:.3}", it.at).into(),
            it.cn.as_deref().map(|cn| names.node(cn)).into(),
            it.source.into(),
            match it.tone {
                Some(tone) => Cell::toned(it.what, tone),
                None => it.what.into(),
            },
            Some(it.details).filter(|it| !it.is_empty()).into(),
            it.cn.into(),
        ]);
    }
    table.print(layout, screen)
}
