// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `nodes`: how each node is, and what needs a person.

use daemon::cli::{Cell, Layout, Screen, Table, Tone, UnknownColumn, span};
use daemon::text::counted;
use sdc_clients::fleet::{Beat, Mirror, NOT_HEARD, What};
use serde_json::Value;

use crate::names::Names;

/// What the table has; the usual columns first.
pub(crate) const COLUMNS: [&str; 13] = [
    "node", "version", "up", "vms", "brake", "holds", "stale", "alarms", "age", "uuid", "machine",
    "position", "help",
];
const USUAL: usize = 9;

/// What `nodes` prints.
pub(crate) struct Printed {
    pub(crate) text: String,
    /// How many nodes need a person.
    pub(crate) needing: usize,
}

/// Lists the nodes, those that need a person first; with `only_needing` no others.
pub(crate) fn list(
    beats: &[Beat],
    mirror: &Mirror,
    only_needing: bool,
    layout: &Layout,
    screen: Screen,
) -> Result<Printed, UnknownColumn> {
    let names = Names::of(beats);
    let mut table = Table::new(&COLUMNS).usually(USUAL);
    let mut rows: Vec<(bool, &str, Vec<Cell>)> = Vec::new();
    let twice = mirror.shown_twice();
    // A VM that migrates is counted where it is shown.
    let hidden = mirror.hidden();
    for beat in beats {
        let cn = beat.node.cn_uuid.as_str();
        let copies = hidden.get(cn).copied().unwrap_or_default();
        let vms = beat.node.vms.saturating_sub(copies as u64);
        let alarms = alarms(beat, &twice, &names);
        let name = names.node(cn);
        rows.push((alarms.is_empty(), name, row(beat, (name, vms), &alarms)));
    }
    rows.sort_by(|(is_well, name, _), (other_is_well, other, _)| {
        (is_well, name).cmp(&(other_is_well, other))
    });
    let needing = rows.iter().filter(|(is_well, ..)| !is_well).count();
    for (is_well, _, cells) in rows {
        if !(only_needing && is_well) {
            table.row(cells);
        }
    }
    let text = match only_needing && needing == 0 && !layout.asks_for_table() && !layout.json {
        true => format!(
            "all well: {}, {}\n",
            counted(beats.len(), "node", "nodes"),
            counted(mirror.len() - hidden.values().sum::<usize>(), "VM", "VMs")
        ),
        false => table.print(layout, screen)?,
    };
    Ok(Printed { text, needing })
}

/// What needs a person, each with the command that helps.
fn alarms(beat: &Beat, twice: &[(&str, Vec<&str>)], names: &Names) -> Vec<(String, String)> {
    let mut all = Vec::new();
    if !beat.is_up() {
        all.push(("not heard".to_owned(), NOT_HEARD.to_owned()));
    }
    for need in &beat.node.needs {
        all.push((format!("{} {}", need.program, need.what.name()), need.command().to_string()));
    }
    if beat.node.left_out > 0 {
        let said = format!("{} fields of its heartbeat are not believed", beat.node.left_out);
        all.push((said, "fleet-agent status".to_owned()));
    }
    let is_on = |nodes: &&Vec<&str>| nodes.contains(&beat.node.cn_uuid.as_str());
    for (vm, nodes) in twice.iter().filter(|(_, nodes)| is_on(&nodes)) {
        let others = nodes.iter().filter(|cn| **cn != beat.node.cn_uuid).map(|cn| names.node(cn));
        let others = others.collect::<Vec<_>>().join(", ");
        all.push((format!("{vm} also shown on {others}"), format!("sdc-fleet vm {vm}")));
    }
    all
}

fn row(beat: &Beat, (name, vms): (&str, u64), alarms: &[(String, String)]) -> Vec<Cell> {
    let node = &beat.node;
    let brake = node.needs.iter().any(|need| need.what == What::Brake);
    let holds: u64 = node.programs.iter().map(|program| program.holds).sum();
    let up = beat.is_up();
    let stale = match up {
        true => node.waits.clone(),
        false => Some("nothing is known since".to_owned()),
    };
    let text = |of: fn(&(String, String)) -> &String| {
        alarms.iter().map(of).cloned().collect::<Vec<_>>().join("; ")
    };
    let yes = |is: bool, tone: Tone| match is {
        true => Cell::toned("yes", tone),
        false => "no".into(),
    };
    vec![
        name.into(),
        node.claim.version.as_str().into(),
        if up { Cell::toned("yes", Tone::Good) } else { Cell::toned("no", Tone::Bad) },
        vms.into(),
        yes(brake, Tone::Bad),
        holds.into(),
        stale.map_or(Value::Null.into(), |why| Cell::toned(why, Tone::Odd)),
        match alarms.is_empty() {
            true => Value::Null.into(),
            false => Cell::toned(text(|(what, _)| what), Tone::Bad),
        },
        Cell::shown(beat.age.as_secs(), span(beat.age)),
        node.cn_uuid.as_str().into(),
        node.claim.machine.as_str().into(),
        node.position.as_ref().map(ToString::to_string).into(),
        text(|(_, help)| help).into(),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use sdc_clients::fleet::{Claim, Need, Node};

    use super::*;

    const PLAIN: Screen = Screen { is_terminal: false, colour: false };

    fn beat(cn: &str, name: &str, ago: u64, needs: Vec<Need>) -> Beat {
        let claim = Claim {
            instance: "i".into(),
            machine: "m".into(),
            hostname: Some(name.into()),
            version: "0.1.0".into(),
        };
        let node = Node {
            cn_uuid: cn.into(),
            claim,
            rival: None,
            every_s: 15,
            position: None,
            vms: 3,
            waits: None,
            programs: Vec::new(),
            needs,
            left_out: 0,
        };
        // No clock of this machine is asked.
        Beat { node, at: Timestamp::MIN, age: Duration::from_secs(ago) }
    }

    fn need(what: What) -> Need {
        Need { program: "vm-agent".into(), what, text: "t".into() }
    }

    #[test]
    fn who_needs_a_person_is_first_and_counted() {
        let beats = [
            beat("c1", "well", 5, Vec::new()),
            beat("c2", "braked", 5, vec![need(What::Brake)]),
            beat("c3", "dead", 90, Vec::new()),
        ];
        let print = |only_needing, layout: &Layout| {
            list(&beats, &Mirror::default(), only_needing, layout, PLAIN).unwrap()
        };
        let printed = print(false, &Layout::default());
        assert_eq!(printed.needing, 2);
        let lines: Vec<&str> = printed.text.lines().collect();
        assert!(
            lines[1].starts_with("braked") && lines[1].contains("vm-agent brake"),
            "{}",
            printed.text
        );
        assert!(lines[2].starts_with("dead") && lines[2].contains("not heard"), "{}", printed.text);
        assert!(lines[3].starts_with("well"), "{}", printed.text);
        assert_eq!(print(true, &Layout::default()).text.lines().count(), 3);
        let help =
            Layout { columns: Some("uuid,help,age".into()), no_header: true, ..Layout::default() };
        assert!(
            print(true, &help).text.starts_with("c2  vm-agent plan"),
            "{}",
            print(true, &help).text
        );
    }

    #[test]
    fn a_data_centre_that_is_well_is_one_line() {
        let beats = [beat("c1", "well", 5, Vec::new())];
        let printed = list(&beats, &Mirror::default(), true, &Layout::default(), PLAIN).unwrap();
        assert_eq!((printed.needing, printed.text.as_str()), (0, "all well: 1 node, 0 VMs\n"));
    }
}
