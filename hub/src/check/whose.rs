// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Whose agents this node runs, and whether the next boot starts ours.

use std::fs;

use daemon::smf::{Whose, whose_service};
use daemon::text::counted;

use super::finding::Finding;
use super::programs::Programs;
use crate::place::Place;

const AGENTS: &str = "/opt/smartdc/agents";
/// Our agents, and the configuration that only ours have: a node with it was given ours.
const OURS: [(&str, &str); 4] = [
    ("net-agent", "net-agent.policy.json"),
    ("vm-agent", "vm-agent.policy.json"),
    ("migration-agent", "migration-agent.config.json"),
    ("fleet-agent", "fleet-agent.config.json"),
];

/// An agent, as it is seen.
struct Seen {
    name: &'static str,
    /// None: SMF knows no such service.
    whose: Option<Whose>,
    /// The node was given ours.
    is_given: bool,
}

pub(super) async fn check(place: &Place, programs: &Programs) -> Vec<Finding> {
    let mut seen = Vec::new();
    for (name, file) in OURS {
        let Ok(whose) = whose_service(&programs.0, name).await else {
            return vec![Finding::unknown("B27", "svcprop cannot be run"), kept(place)];
        };
        let is_given = place.file(&format!("{AGENTS}/etc/{file}")).exists();
        seen.push(Seen { name, whose, is_given });
    }
    vec![judged(&seen), kept(place)]
}

fn judged(seen: &[Seen]) -> Finding {
    let is_ours = |one: &Seen| one.whose == Some(Whose::Ours);
    let moves = seen.iter().any(|one| one.name == "migration-agent" && is_ours(one));
    let (mut against, mut others) = (Vec::new(), Vec::new());
    for one in seen.iter().filter(|one| !is_ours(one)) {
        let said = format!("this node runs another {}", one.name);
        match one.whose {
            None if one.is_given => against.push(format!("{} is missing", one.name)),
            None => {}
            Some(_) if one.is_given => against.push(said),
            Some(_) if moves && one.name == "vm-agent" => {
                against.push(format!("{said}: no VM is moved from it or to it"));
            }
            Some(_) => others.push(said),
        }
    }
    let own = seen.iter().filter(|one| is_ours(one)).count();
    let counted = counted(own, "agent is ours", "agents are ours");
    let text = std::iter::once(counted).chain(others).collect::<Vec<_>>().join("; ");
    match own {
        0 if against.is_empty() => Finding::unknown("B27", text),
        _ => Finding::unless("B27", &against, text),
    }
}

/// Each manifest of a package of ours is where manifest-import finds it at a boot.
fn kept(place: &Place) -> Finding {
    let names = |path: &str| -> Vec<String> {
        let all = fs::read_dir(place.file(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    let (mut against, mut found) = (Vec::new(), 0);
    let folder = format!("{AGENTS}/lib/node_modules");
    // Of a package of ours alone this is a part.
    let is_ours = |name: &String| place.file(&format!("{folder}/{name}/smf/boot")).exists();
    for package in names(&folder).into_iter().filter(is_ours) {
        for manifest in names(&format!("{folder}/{package}/smf/manifests")) {
            let Some(manifest) = manifest.strip_suffix(".in") else { continue };
            found += 1;
            if !place.file(&format!("{AGENTS}/smf/{manifest}")).exists() {
                against.push(format!(
                    "{AGENTS}/smf has no {manifest}: the next boot does not start it"
                ));
            }
        }
    }
    match found {
        0 => Finding::unknown("B28", "no package of ours is installed"),
        found => Finding::unless("B28", &against, counted(found, "manifest", "manifests")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // B27
    fn another_agent_and_a_missing_one_are_named() {
        let of = |net: Option<Whose>, vm: Option<Whose>, moves: Option<Whose>, given: bool| {
            let one = |name, whose, is_given| Seen { name, whose, is_given };
            let seen = [
                one("net-agent", net, given),
                one("vm-agent", vm, false),
                one("migration-agent", moves, moves.is_some()),
            ];
            let found = judged(&seen);
            format!("{} {}", found.verdict.word(), found.seen)
        };
        let (ours, deployed) = (Some(Whose::Ours), Some(Whose::Deployed));
        for (got, want) in [
            (of(ours, ours, ours, true), "holds 3 agents are ours"),
            (
                of(ours, deployed, None, true),
                "holds 1 agent is ours; this node runs another vm-agent",
            ),
            (of(deployed, ours, None, true), "FALSE this node runs another net-agent"),
            (of(None, ours, None, true), "FALSE net-agent is missing"),
            (
                of(ours, deployed, ours, true),
                "FALSE this node runs another vm-agent: no VM is moved from it or to it",
            ),
            (
                of(deployed, deployed, None, false),
                "unknown 0 agents are ours; this node runs another net-agent; this node runs another vm-agent",
            ),
            (of(None, None, None, false), "unknown 0 agents are ours"),
        ] {
            assert_eq!(got, want);
        }
    }
}
