// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! SMF: which services of ours and of the platform run.

use daemon::command::Program;
use daemon::text::counted;

use super::finding::Finding;
use super::programs::Programs;

/// Services of which a node has one: the shipped one, or ours of the same name.
const ONE_OF: [&str; 3] = ["vminfod", "net-agent", "vm-agent"];

pub(super) async fn check(programs: &Programs) -> Vec<Finding> {
    let printed = match programs.printed(Program::Svcs, &["-a", "-H", "-o", "state,fmri"]).await {
        Ok(printed) => printed,
        Err(why) => return vec![Finding::unknown("B15", why)],
    };
    let text = String::from_utf8_lossy(&printed).into_owned();
    let (mut against, mut running) = (Vec::new(), 0);
    let mut unreadable = 0;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(state), Some(fmri)) = (words.next(), words.next()) else {
            unreadable += 1;
            continue;
        };
        let name = fmri.rsplit('/').next().and_then(|name| name.split(':').next());
        let Some(name) = name.filter(|name| ONE_OF.contains(name)) else { continue };
        match state {
            "online" => running += 1,
            "maintenance" | "degraded" => against.push(format!("{name} is in {state}")),
            _ => {}
        }
    }
    for name in ONE_OF {
        let is_of = |line: &&str| line.starts_with("online") && line.contains(&format!("/{name}:"));
        let instances = text.lines().filter(is_of).count();
        if instances > 1 {
            against.push(format!("{name} runs {instances} times"));
        }
    }
    if unreadable > 0 {
        against.push(format!("{} cannot be read", counted(unreadable, "row", "rows")));
    }
    vec![Finding::unless("B15", &against, format!("{running} of {} services run", ONE_OF.len()))]
}
