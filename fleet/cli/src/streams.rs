// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `streams`: how the streams of the feed are, whether `VMS` moves, and whether a server may be stopped.

use daemon::cli::{Cell, Layout, Screen, Table, Tone, UnknownColumn};
use sdc_clients::fleet::Health;
use serde_json::Value;

const COLUMNS: [&str; 6] = ["stream", "messages", "bytes", "leader", "behind", "lag"];

/// Lists the streams; returns whether every server has all of them, and `VMS` does not stand still.
pub(crate) fn list(
    all: &[Health],
    stands_still: bool,
    layout: &Layout,
    screen: Screen,
) -> Result<(String, bool), UnknownColumn> {
    let mut table = Table::new(&COLUMNS);
    for health in all {
        table.row(vec![
            health.stream.into(),
            health.messages.into(),
            health.bytes.into(),
            health.leader.as_deref().into(),
            match health.behind.is_empty() {
                true => Value::Null.into(),
                false => Cell::toned(health.behind.join(", "), Tone::Bad),
            },
            match stands_still && health.lag > 0 {
                true => Cell::toned(format!("{} (stands still)", health.lag), Tone::Bad),
                false => health.lag.into(),
            },
        ]);
    }
    let is_whole = all.iter().all(|health| health.behind.is_empty());
    Ok((table.print(layout, screen)?, is_whole && !stands_still))
}
