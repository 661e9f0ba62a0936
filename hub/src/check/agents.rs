// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Whether the agents' state files are of this node.

use serde_json::Value;

use super::finding::Finding;
use crate::place::Place;

/// The agents that keep one.
const AGENTS: [&str; 2] = ["vm-agent", "net-agent"];

/// A state file of another node means that the node's uuid has changed.
pub(super) fn check(place: &Place, cn: Option<&str>) -> Finding {
    let Some(cn) = cn else { return Finding::unknown("B25", "sysinfo names no node") };
    let kept = |agent: &str| {
        let bytes = std::fs::read(place.file(&format!("/var/db/{agent}/memory.json"))).ok()?;
        let file: Value = serde_json::from_slice(&bytes).ok()?;
        file["cn_uuid"].as_str().map(str::to_owned)
    };
    let found: Vec<(&str, String)> =
        AGENTS.into_iter().filter_map(|agent| Some((agent, kept(agent)?))).collect();
    if found.is_empty() {
        return Finding::unknown("B25", "no agent has a state file");
    }
    let others = found.iter().filter(|(_, node)| *node != cn);
    let against: Vec<String> = others
        .map(|(agent, _)| {
            format!(
                "the state file of {agent} is another node's: the uuid changed, see `{agent} claim`"
            )
        })
        .collect();
    Finding::unless("B25", &against, format!("{} state files", found.len()))
}
