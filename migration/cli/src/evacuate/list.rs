// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `evacuations`: those that are under way.

use std::process::ExitCode;

use daemon::cli::{Cell, Layout, Table, Tone};
use serde_json::Value;

use crate::args::NAME;
use crate::order::now;
use crate::services::Services;
use crate::show::Style;
use crate::units;
use migration_core::time::Time;

const COLUMNS: [&str; 9] =
    ["node", "state", "moved", "left", "stay", "for", "by", "program", "uuid"];
const USUAL: usize = 7;
/// The service that carries one on notes it at least so often, in ms.
const CARRIED_MS: i64 = 60_000;

/// Lists them.
pub(crate) async fn list(
    services: &Services,
    layout: &Layout,
    style: Style,
) -> anyhow::Result<ExitCode> {
    let (all, hosts, now) =
        (services.migrations.evacuations().await?, services.hosts().await, now());
    let mut table = Table::new(&COLUMNS).usually(USUAL);
    for one in &all {
        let age = |text: &str| Time::parse(text).map(|at| now.since(at).max(0));
        // One that has just begun was not noted yet.
        let is_fresh = |at: &str| age(at).is_some_and(|ms| ms <= CARRIED_MS);
        let state: Cell = match one.paused {
            true => "paused".into(),
            false if is_fresh(&one.seen) || is_fresh(&one.began) => Cell::toned("runs", Tone::Good),
            false => Cell::toned("waits", Tone::Odd),
        };
        let count = |count: Option<u64>| count.map_or(Cell::from(Value::Null), Cell::from);
        let since = age(&one.began).and_then(|ms| u64::try_from(ms).ok());
        table.row(vec![
            hosts.name(&one.cn_uuid).into(),
            state,
            count(one.moved),
            count(one.left),
            count(one.stay),
            since.map_or(Value::Null.into(), |ms| Cell::shown(ms / 1000, units::long(ms))),
            Cell::from(one.by.as_deref()),
            Cell::from(one.program.as_deref()),
            one.cn_uuid.as_str().into(),
        ]);
    }
    Ok(daemon::cli::print(NAME, &table.print(layout, style.screen)?))
}
