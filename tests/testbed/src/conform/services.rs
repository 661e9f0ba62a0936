// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed conform papi|imgapi|workflow FILE`: replays exchanges recorded from these services against the mocks
//! and reports every answer that differs and has no row in the file of deviations.

mod imgapi; // the images of a recording

mod papi; // the packages of a recording

mod workflow; // the workflows of a recording, and what its runner did

pub(super) mod replay; // the groups in their order

mod compare; // when two answers are the same

mod rules; // where the mocks answer otherwise on purpose

use std::path::Path;

use super::tally::{Tally, only};
use super::transcript::Transcript;

/// The names of the recordings in a directory of fixtures.
pub(super) const PAPI: &str = "papi-transcripts.jsonl";
pub(super) const IMGAPI: &str = "imgapi-transcripts.jsonl";
pub(super) const WORKFLOW: &str = "workflow-transcripts.jsonl";

const DEVIATIONS: &str = include_str!("../../fixtures/services-deviations.jsonl");

pub(super) fn check_papi(path: &Path, flags: &[String]) -> anyhow::Result<Tally> {
    check::<papi::Packages>(&Transcript::read(path)?, flags, DEVIATIONS)
}

pub(super) fn check_imgapi(path: &Path, flags: &[String]) -> anyhow::Result<Tally> {
    check::<imgapi::Images>(&Transcript::read(path)?, flags, DEVIATIONS)
}

pub(super) fn check_workflow(path: &Path, flags: &[String]) -> anyhow::Result<Tally> {
    check::<workflow::Jobs>(&Transcript::read(path)?, flags, DEVIATIONS)
}

/// Compares with a recording; `--only GROUP` replays one group.
pub(super) fn check<W: replay::World>(
    transcript: &Transcript,
    flags: &[String],
    deviations: &str,
) -> anyhow::Result<Tally> {
    let only = only(flags)?;
    let rules = rules::Rules::read(deviations, W::KIND)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(replay::replay::<W>(transcript, rules, only))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Check = fn(&Path, &[String]) -> anyhow::Result<Tally>;

    #[test] // D1
    fn the_recorded_exchanges_are_answered_alike() {
        let dir = recordings::unpacked().unwrap();
        let kinds: [(&str, Check, usize); 3] =
            [(PAPI, check_papi, 161), (IMGAPI, check_imgapi, 175), (WORKFLOW, check_workflow, 125)];
        for (file, check, count) in kinds {
            let tally = check(&dir.path().join(file), &[]).unwrap();
            assert_eq!((tally.failures, tally.passed), (Vec::new(), count), "{file}");
            let left: Vec<_> =
                tally.notes.iter().filter(|note| !note.contains("on purpose")).collect();
            assert!(left.is_empty(), "{file}: {left:?}");
        }
    }

    #[test] // D6
    fn what_is_no_exchange_is_said_and_the_next_group_is_replayed() {
        let world = r#"{"seed": "s", "mode": "papi", "world": {}, "requests": []}"#.to_owned();
        let group = |name: &str| {
            format!(r#"{{"group": "{name}", "seed": "s", "mode": "papi", "setup": []}}"#)
        };
        let fine = r#""request": {"method": "GET", "path": "/nope"}, "response": {"status": 404,
            "headers": {"content-type": "application/json"}, "body_text": ""}"#;
        for (odd, said) in [
            (
                r#""request": {"do": "record vanishes"}, "response": {"status": 200}"#,
                "record vanishes",
            ),
            (
                r#""request": {"method": "GET", "path": "/packages", "query": "a=b"}"#,
                "GET /packages?a=b",
            ),
            (
                r#""request": {"method": "GET", "path": "/packages"}, "response": null"#,
                "GET /packages",
            ),
            (
                r#""request": {"method": "GET", "path": "/packages", "meanwhile": [{"ms": 5, "do": "odd"}]},
                "response": {"status": 200}"#,
                "odd",
            ),
        ] {
            let exchange = |id: u8, group: &str, of: &str| {
                format!(r#"{{"id": {id}, "group": "{group}", {of}}}"#).replace('\n', " ")
            };
            let lines = [
                world.clone(),
                group("g"),
                exchange(1, "g", odd),
                exchange(2, "g", fine),
                group("h"),
                exchange(3, "h", fine),
            ];
            let dir = tempfile::TempDir::new().unwrap();
            let path = dir.path().join("odd.jsonl");
            std::fs::write(&path, lines.join("\n")).unwrap();
            let tally = check_papi(&path, &[]).unwrap();
            assert_eq!(tally.passed + tally.failures.len(), 1, "{odd}: {tally:?}");
            let left = tally.notes.iter().find(|note| note.starts_with("left out: the rest of g"));
            assert!(left.is_some_and(|note| note.contains(said)), "{odd}: {tally:?}");
        }
    }

    #[test] // D5
    fn a_recording_that_the_runner_was_not_made_for_is_read() {
        let text = [
            r#"{"seed": "s", "mode": "papi", "world": {}, "requests": []}"#,
            r#"{"group": "g", "seed": "s", "mode": "papi", "setup": []}"#,
            r#"{"group": "g", "world": {"do": "something new"}}"#,
            r#"{"id": 1, "group": "g", "request": {"method": "GET", "path": "/nope"}, "response": {"status": 200}}"#,
            r#"{"group": "h", "seed": "s", "mode": "papi", "setup": []}"#,
            r#"{"id": 2, "group": "h", "request": {"method": "GET", "path": "/packages"},
                "response": {"status": 200, "headers": {"content-type": "application/json", "api-version": "7.2.5", "x-resource-count": "0"},
                "body": []}}"#,
        ];
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("new.jsonl");
        std::fs::write(&path, text.map(|line| line.replace('\n', " ")).join("\n")).unwrap();
        let tally = check_papi(&path, &[]).unwrap();
        assert_eq!((tally.failures, tally.passed), (Vec::new(), 1));
        assert!(
            tally
                .notes
                .iter()
                .any(|note| note.starts_with("left out: the rest of g: nobody knows")),
            "{:?}",
            tally.notes
        );
    }
}
