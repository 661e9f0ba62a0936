// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The lines of a watch off a terminal and with `--no-ansi`, and its last sentence: those of the shipped
//! tool. Pure.

use daemon::cli::screen::visible;
use sdc_clients::migrations::{Event, Progress};
use serde_json::Value;

use super::units;

/// Returns the line of an event, if it has one.
pub(super) fn line(event: &Event) -> Option<String> {
    match event {
        Event::Progress(progress) => Some(running(progress)),
        Event::End { .. } => None,
        Event::Other(object) => object.get("message").and_then(Value::as_str).map(visible),
    }
}

fn running(progress: &Progress) -> String {
    let percent = units::percent(progress.current_progress, progress.total_progress).unwrap_or(0);
    let rate = progress.transfer_bytes_second.map(units::rate).unwrap_or_default();
    let eta = progress.eta_ms.map(units::long).filter(|eta| !eta.is_empty());
    let eta = eta.map(|eta| format!(" (ETA {eta}) ")).unwrap_or_default();
    let message = progress.message.as_deref().map(visible).unwrap_or_default();
    format!("running: {percent}%  {rate} {eta} {message}")
}

/// How a watch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ending {
    pub text: String,
    /// It goes to stderr, and the program fails.
    pub is_failure: bool,
}

/// Returns true if what was asked for did not come, since somebody else has ended the migration by another verb.
pub(super) fn is_of_another(action: Option<&str>, phase: &str) -> bool {
    let ends = ["abort", "rollback", "rescue"];
    // The copy on the new node that was replaced is finalized by an abort.
    let action = action.filter(|it| *it != "finalize");
    action.is_some_and(|action| action != phase && ends.contains(&phase) && !ends.contains(&action))
}

/// Returns the last sentence of a watch.
pub(super) fn ending(phase: &str, state: &str, message: Option<&str>) -> Ending {
    let message = message.map(visible).unwrap_or_default();
    let (text, is_failure) = match (phase, state) {
        (_, "failed") => (format!("Failure: {message}"), true),
        ("abort", "successful" | "aborted") => ("Migration was aborted".to_owned(), false),
        ("rollback", "successful") => ("Migration was rolled back".to_owned(), false),
        ("rescue", "successful") => ("The instance was rescued".to_owned(), false),
        (_, "successful") => (format!("Migration was successful {message}"), false),
        ("begin", "paused") => ("OK - ready for migration sync".to_owned(), false),
        (_, "paused") => ("OK - ready for migration sync or migration switch".to_owned(), false),
        (_, state) => (format!("Migration {} {message}", visible(state)), state == "unknown"),
    };
    Ending { text: text.trim_end().to_owned(), is_failure }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    /// The lines and the end of each recorded watch.
    fn recorded() -> Vec<(String, Vec<Value>)> {
        let text = recordings::text("vmapi-transcripts.jsonl").unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let streams = lines.filter_map(|line| {
            let stream = line["response"]["stream"].as_array()?;
            let id = line["id"].as_str()?.to_owned();
            (line["group"] == "watch")
                .then(|| (id, stream.iter().map(|it| it["line"].clone()).collect()))
        });
        streams.collect()
    }

    fn shown(line: &Value) -> String {
        if line["type"] == "end" {
            let text = |key: &str| line[key].as_str();
            return ending(text("phase").unwrap(), text("state").unwrap(), text("message")).text;
        }
        let progress = serde_json::from_value(line.clone()).unwrap();
        super::line(&Event::Progress(Box::new(progress))).unwrap()
    }

    #[test] // R19
    fn recorded_watches_are_shown_as_the_shipped_tool_does() {
        let ready = "OK - ready for migration sync or migration switch";
        let sync = ["running: 10%  10.0B/s  (ETA 9s)  ", "running: 50%  20.0B/s  (ETA 5s)  "]
            .map(str::to_owned);
        let want: [(&str, Vec<&str>); 8] = [
            ("m-watch-03", vec!["OK - ready for migration sync"]),
            ("m-watch-04", vec![ready]),
            ("m-watch-05", vec!["Failure: out of space"]),
            ("m-watch-06", vec!["Migration was successful"]),
            ("m-watch-07", vec!["running: 1%    syncing", &sync[0], &sync[1], ready]),
            ("m-watch-08", vec![&sync[1], ready]),
            (
                "m-watch-09",
                vec![
                    "running: 1%    syncing",
                    &sync[1],
                    "running: 3%    stopping",
                    "running: 1%    syncing",
                    "Failure: bad",
                ],
            ),
            ("m-watch-10", vec!["running: 1%    syncing", &sync[1], "Migration was successful"]),
        ];
        let recorded = recorded();
        assert_eq!(recorded.len(), want.len());
        for ((id, lines), (wanted, texts)) in recorded.iter().zip(&want) {
            assert_eq!(id, wanted);
            assert_eq!(lines.iter().map(shown).collect::<Vec<_>>(), *texts, "{id}");
        }
    }

    #[test]
    fn every_end_has_its_sentence() {
        for (phase, state, message, text, is_failure) in [
            ("abort", "successful", None, "Migration was aborted", false),
            ("abort", "aborted", None, "Migration was aborted", false),
            ("abort", "failed", Some("x"), "Failure: x", true),
            ("rollback", "successful", None, "Migration was rolled back", false),
            ("sync", "scheduled", None, "Migration scheduled", false),
            ("switch", "unknown", None, "Migration unknown", true),
            ("sync", "failed", Some("a\u{1b}[2J"), "Failure: a\\u001b[2J", true),
        ] {
            let want = Ending { text: text.to_owned(), is_failure };
            assert_eq!(ending(phase, state, message), want);
        }
    }

    #[test]
    fn a_switch_that_somebody_else_has_ended_has_failed() {
        assert!(is_of_another(Some("switch"), "abort") && is_of_another(Some("sync"), "rollback"));
        assert!(!is_of_another(Some("switch"), "switch") && !is_of_another(Some("sync"), "switch"));
        assert!(!is_of_another(Some("abort"), "abort") && !is_of_another(None, "abort"));
    }

    #[test] // R23
    fn a_warning_is_shown_as_it_is_told() {
        let event = |value: Value| Event::Other(value.as_object().unwrap().clone());
        let warning = event(json!({"type": "warning", "message": "the image is\ncopied"}));
        assert_eq!(line(&warning).as_deref(), Some("the image is\\u000acopied"));
        assert_eq!(line(&event(json!({"type": "x"}))), None);
    }
}
