// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed conform cnapi FILE`: replays exchanges recorded from the real CNAPI against the mock.

mod world; // the nodes of a recording, and what they and the other services did

mod compare; // when two answers of CNAPI are the same

use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use super::services;
use super::tally::Tally;
use super::transcript::Transcript;

/// The name of the recording in a directory of fixtures.
pub(super) const FILE: &str = "cnapi-transcripts.jsonl";

const DEVIATIONS: &str = include_str!("../../fixtures/cnapi-deviations.jsonl");

/// Compares with the recording at the path; `--only GROUP` replays one group.
pub(super) fn check(path: &Path, flags: &[String]) -> anyhow::Result<Tally> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let transcript = Transcript::parse(&whole(&text), path)?;
    services::check::<world::Nodes>(&transcript, flags, DEVIATIONS)
}

/// The text with each sysinfo in full: one that a node told before stands there by the letter of the node.
fn whole(text: &str) -> String {
    let first: Value =
        text.lines().next().and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default();
    let (servers, requests) = (&first["world"]["servers"], &first["world"]["base"]["requests"]);
    let requests = requests.as_array().into_iter().flatten();
    let told =
        requests.filter_map(|asked| Some(&asked["body"]["sysinfo"]).filter(|it| it.is_object()));
    told.fold(text.to_owned(), |text, sysinfo| {
        let is_it = |(_, uuid): &(&String, &Value)| **uuid == sysinfo["UUID"];
        let letter =
            servers.as_object().into_iter().flatten().find(is_it).map(|(letter, _)| letter);
        let Some(letter) = letter else { return text };
        ["{\"=sysinfo\": \"_\"}", "{\"=sysinfo\":\"_\"}"].iter().fold(text, |text, short| {
            text.replace(&short.replace('_', letter), &sysinfo.to_string())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // CN1
    fn the_recorded_exchanges_are_answered_alike() {
        let dir = recordings::unpacked().unwrap();
        let tally = check(&dir.path().join(FILE), &[]).unwrap();
        assert_eq!((tally.failures, tally.passed), (Vec::new(), 694));
        let left: Vec<_> = tally.notes.iter().filter(|it| !it.contains("on purpose")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
