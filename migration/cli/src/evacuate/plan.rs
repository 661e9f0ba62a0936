// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How an evacuation is shown. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use daemon::cli::hosts::Hosts;
use daemon::cli::screen::visible;
use daemon::cli::{Cell, Layout, Screen, Table, Tone, UnknownColumn, span};
use migration_core::evacuation::{Count, EvacuatedVm, Next, count, next};
use sdc_clients::migrations::Migration;
use serde_json::Value;

use crate::units;

/// Returns a word for the list and the lines of progress.
pub(crate) fn state(known: &EvacuatedVm) -> String {
    match &known.migration {
        Some(migration) => format!("{} {}", migration.phase, migration.state),
        None if known.is_here => "here".to_owned(),
        None => "gone".to_owned(),
    }
}

/// Returns how people call a VM: its alias, or the beginning of its uuid.
pub(crate) fn called(vm: &str, known: &EvacuatedVm) -> String {
    match known.alias.is_empty() {
        true => vm.chars().take(8).collect(),
        false => visible(&known.alias),
    }
}

/// Characters of a name in a row; what is longer is cut.
const WIDTH: usize = 19;

fn line(cells: [&str; 5], last: &str) -> String {
    let [vm, target, bytes, time, downtime] = cells;
    format!("{vm:<20} {target:<14} {bytes:>9} {time:>7} {downtime:>8}  {last}\n")
}

/// Returns the title of the rows of a dry run.
pub(crate) fn title() -> String {
    line(["VM", "TARGET", "BYTES", "TIME", "DOWNTIME"], "OBSTACLE")
}

/// Returns the row of a VM, which is printed before the others are known.
pub(crate) fn row(
    vm: &str,
    known: &EvacuatedVm,
    cn: &str,
    was_tried: bool,
    hosts: &Hosts,
) -> String {
    let target = target(known).map_or("-".to_owned(), |uuid| visible(hosts.name(uuid)));
    let [bytes, time, downtime] = match &known.estimate {
        Some(it) => {
            [units::bytes(it.size_bytes), seconds(it.total_seconds), seconds(it.downtime_seconds)]
        }
        None => ["-"; 3].map(str::to_owned),
    };
    let last = match next(known, cn, was_tried) {
        Next::Stays(obstacle) => hosts.in_text(&visible(&obstacle.to_string())),
        Next::Moved => "it has moved".to_owned(),
        Next::Runs | Next::Resume => under_way(known),
        Next::Begin => String::new(),
    };
    let name = called(vm, known);
    let name = match name.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name,
    };
    line([&name, &target, &bytes, &time, &downtime], &last).trim_end().to_owned() + "\n"
}

/// Returns where a VM goes. CNAPI may choose another node when the migration begins.
fn target(known: &EvacuatedVm) -> Option<&str> {
    let migration = known.migration.as_ref().filter(|it| !is_given_up(it));
    let migration = migration.and_then(|it| it.target_server_uuid.as_deref());
    migration.or(known.estimate.as_ref().and_then(|it| it.target_server_uuid.as_deref()))
}

/// Returns true of a migration that is being aborted: its copy goes, and the VM begins anew.
fn is_given_up(migration: &Migration) -> bool {
    migration.phase == "abort"
}

/// Returns what is said of a VM that migrates already.
fn under_way(known: &EvacuatedVm) -> String {
    match &known.migration {
        Some(it) if is_given_up(it) => "its migration is being aborted; it begins anew".to_owned(),
        _ => format!("it migrates already: {}", visible(&state(known))),
    }
}

fn seconds(count: u64) -> String {
    span(Duration::from_secs(count))
}

/// What a node may do at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) at_once: usize,
    /// Megabit per second of all its streams together; none if nobody said.
    pub(crate) mbps: Option<u64>,
}

impl Limits {
    /// For how many seconds its streams carry so many bytes.
    fn carries(self, bytes: u64) -> u64 {
        const MBIT: u64 = 125_000;
        self.mbps.map_or(0, |mbps| bytes / mbps.saturating_mul(MBIT).max(1))
    }
}

/// Returns what all of it takes: as long as the longest one, as the streams of the node, which share its limit, and as
/// what is left of each beside its streams, so many at once.
pub(crate) fn sum(
    vms: &BTreeMap<String, EvacuatedVm>,
    cn: &str,
    tried: &BTreeSet<String>,
    limits: Limits,
) -> String {
    let Count { moved, stay, left } = count(vms, cn, tried);
    let (mut bytes, mut fixed, mut longest) = (0_u64, 0_u64, 0);
    for it in vms.values().filter_map(|known| known.estimate.as_ref()) {
        bytes = bytes.saturating_add(it.size_bytes);
        let beside = it.total_seconds.saturating_sub(limits.carries(it.size_bytes));
        fixed = fixed.saturating_add(beside);
        longest = longest.max(it.total_seconds);
    }
    let at_once = limits.at_once.max(1);
    let carried = limits.carries(bytes);
    let fixed = fixed / u64::try_from(at_once).unwrap_or(u64::MAX);
    let time = carried.max(longest).max(fixed);
    let moved = if moved > 0 { format!(", {moved} have moved") } else { String::new() };
    let why = if time == carried && carried > 0 { " as the link allows" } else { "" };
    format!(
        "{left} can move ({}, about {}{why} with {at_once} at once), {stay} cannot{moved}\n",
        units::bytes(bytes),
        seconds(time)
    )
}

/// The columns of an evacuation.
pub(crate) const COLUMNS: [&str; 8] =
    ["vm", "alias", "target", "bytes", "minutes", "downtime", "state", "obstacle"];

/// Returns the table of an evacuation.
/// Fails if a column that is asked for does not exist.
pub(crate) fn table(
    vms: &BTreeMap<String, EvacuatedVm>,
    cn: &str,
    tried: &BTreeSet<String>,
    layout: &Layout,
    screen: Screen,
) -> Result<String, UnknownColumn> {
    let mut table = Table::new(&COLUMNS);
    for (vm, known) in vms {
        let obstacle = match next(known, cn, tried.contains(vm)) {
            Next::Stays(obstacle) => Cell::toned(obstacle.to_string(), Tone::Bad),
            _ => Value::Null.into(),
        };
        let [bytes, minutes, downtime] = match &known.estimate {
            Some(it) => [
                Cell::shown(it.size_bytes, units::bytes(it.size_bytes)),
                it.total_seconds.div_ceil(60).into(),
                Cell::shown(it.downtime_seconds, span(Duration::from_secs(it.downtime_seconds))),
            ],
            None => [Value::Null, Value::Null, Value::Null].map(Cell::from),
        };
        table.row(vec![
            vm.as_str().into(),
            known.alias.as_str().into(),
            target(known).into(),
            bytes,
            minutes,
            downtime,
            state(known).into(),
            obstacle,
        ]);
    }
    table.print(layout, screen)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use pretty_assertions::assert_eq;
    use sdc_clients::migrations::Estimate;
    use serde_json::json;

    use super::*;

    const PLAIN: Screen = Screen { is_terminal: false, colour: false };

    #[test]
    fn the_dry_run_says_what_each_vm_takes() {
        let estimate = json!({
            "total_seconds": 3601, "downtime_seconds": 21, "size_bytes": 10_u64 << 30,
            "target_server_uuid": "U",
        });
        let estimate = Some(serde_json::from_value(estimate).unwrap());
        let core = Some("Cannot migrate a core instance".to_owned());
        let sync = json!({
            "phase": "sync", "state": "running", "automatic": true, "source_server_uuid": "CN",
            "target_server_uuid": "T",
        });
        let migration = Some(serde_json::from_value(sync).unwrap());
        let vms: BTreeMap<String, EvacuatedVm> = [
            (
                "a",
                EvacuatedVm {
                    alias: "web".into(),
                    is_here: true,
                    estimate,
                    ..EvacuatedVm::default()
                },
            ),
            ("b", EvacuatedVm { is_here: true, refusal: core, ..EvacuatedVm::default() }),
            ("c", EvacuatedVm { is_here: true, migration, ..EvacuatedVm::default() }),
        ]
        .map(|(vm, known)| (vm.to_owned(), known))
        .into();
        let want = "\
VM  ALIAS  TARGET  BYTES    MINUTES  DOWNTIME  STATE         OBSTACLE
a   web    U       10.0GiB  61       21s       here          -
b   -      -       -        -        -         here          Cannot migrate a core instance
c   -      T       -        -        -         sync running  -
";
        let tried = BTreeSet::new();
        assert_eq!(table(&vms, "CN", &tried, &Layout::default(), PLAIN).unwrap(), want);
        assert_eq!(count(&vms, "CN", &tried), Count { moved: 0, stay: 1, left: 2 });
    }

    #[test]
    fn a_dry_run_has_a_row_for_each_and_a_sum() {
        let estimate = Estimate {
            total_seconds: 600,
            downtime_seconds: 20,
            size_bytes: 3 << 30,
            target_server_uuid: Some("T".to_owned()),
            ..Estimate::default()
        };
        let moves = EvacuatedVm {
            alias: "web".to_owned(),
            is_here: true,
            estimate: Some(estimate),
            ..EvacuatedVm::default()
        };
        let refusal = Some("a core instance".to_owned());
        let stays = EvacuatedVm { is_here: true, refusal, ..EvacuatedVm::default() };
        let said = row("aaaaaaaa-1", &moves, "CN", false, &Hosts::default());
        assert_eq!(
            said.split_whitespace().collect::<Vec<_>>(),
            ["web", "T", "3.0GiB", "10m", "20s"]
        );
        let said = row("aaaaaaaa-1", &stays, "CN", false, &Hosts::default());
        assert!(said.starts_with("aaaaaaaa ") && said.ends_with("  a core instance\n"), "{said}");
        let vms = BTreeMap::from([
            ("a".to_owned(), moves.clone()),
            ("b".to_owned(), moves),
            ("c".to_owned(), stays),
        ]);
        let sum = |at_once, mbps| sum(&vms, "CN", &BTreeSet::new(), Limits { at_once, mbps });
        let said = sum(2, None);
        assert_eq!(said, "2 can move (6.0GiB, about 10m with 2 at once), 1 cannot\n");
        let said = sum(5, Some(1000));
        assert!(said.contains("about 10m with 5"), "never less than the longest: {said}");
        let said = sum(5, Some(50));
        assert!(said.contains("about 17m10s as the link allows"), "both share the link: {said}");
        let said = sum(1, Some(1000));
        assert!(said.contains("about 19m10s with 1"), "what is left beside the streams: {said}");
    }
}
