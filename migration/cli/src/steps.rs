// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The list of steps that a watch shows on a terminal (RFD 34's user stories): done ones with how long they
//! took, the running one with percent, ETA and rate. Pure.

use std::time::Duration;

use daemon::cli::screen::visible;
use daemon::cli::{Screen, Tone, span};
use sdc_clients::migrations::{Migration, Progress};
use serde_json::Value;

use super::units;

/// Longest part of a message that is shown of the running step, which must stay on one line.
const MESSAGE: usize = 40;
/// So many failed attempts of steps are shown.
const MOST_NOTES: usize = 50;

/// The steps of one migration.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Steps {
    history: Vec<Progress>,
    /// The last event of bytes of the step that runs.
    bytes: Option<Progress>,
    /// Attempts that failed, each above the step of this number.
    notes: Vec<(usize, String)>,
    /// What a person may do was told.
    is_told: bool,
    /// What was last printed of the step that is tried again.
    again: Option<(Option<Value>, Option<Value>)>,
}

/// Returns what a migration waits for, as a sentence, where the service reports it.
pub(super) fn waits_for(migration: &Migration) -> Option<String> {
    migration.other.get("waits_for").and_then(Value::as_str).map(visible)
}

impl Steps {
    /// Takes the history as the record has it now.
    pub(super) fn reread(&mut self, migration: &Migration) {
        let history = migration.progress_history.clone();
        if history.len() != self.history.len() {
            self.bytes = None;
        }
        self.history = history;
        let again = migration.other.get("journal").and_then(|it| it.get("again"));
        // The times go on while the attempt is the same.
        let again = again.map(|it| (it.get("failed").cloned(), it.get("why").cloned()));
        if again.is_some() && again != self.again {
            // The rate of a stream means nothing once it has failed.
            self.bytes = None;
            let at = self.history.len().saturating_sub(1);
            if self.notes.len() < MOST_NOTES {
                self.notes.extend(waits_for(migration).map(|why| (at, why)));
            }
        }
        self.again = again;
    }

    /// Tells, once, what a person may do about the step that runs.
    pub(super) fn tell(&mut self, what: &str) {
        if !std::mem::replace(&mut self.is_told, true) {
            let at = self.history.len().saturating_sub(1);
            self.notes.push((at, what.replace('\n', "\n  ")));
        }
    }

    /// Takes an event. Returns true if the history has to be read again.
    pub(super) fn take(&mut self, progress: &Progress) -> bool {
        if progress.started_timestamp.is_some() {
            return true;
        }
        let Some(last) = self.history.last_mut().filter(|last| last.state == "running") else {
            return true;
        };
        if progress.transfer_bytes_second.is_some() {
            self.bytes = Some(progress.clone());
        } else {
            last.current_progress = progress.current_progress.or(last.current_progress);
            last.total_progress = progress.total_progress.or(last.total_progress);
            last.message = progress.message.clone().or(last.message.take());
        }
        false
    }

    /// Ends the step that runs: its record went with it.
    pub(super) fn end(&mut self, state: &str) {
        self.bytes = None;
        if let Some(last) = self.history.last_mut().filter(|last| last.state == "running") {
            last.state = state.to_owned();
        }
    }

    /// Returns the lines. What failed before the last step was repeated since: it would read as if this one had failed.
    pub(super) fn lines(&self, screen: Screen) -> Vec<String> {
        let (mark, last) = (screen.paint(Tone::Odd, "!"), self.history.len().saturating_sub(1));
        let is_now = |at: usize, step: &Progress| at == last || step.state != "failed";
        let steps = self.history.iter().enumerate().filter(|(at, step)| is_now(*at, step));
        let steps = steps.flat_map(|(at, step)| {
            let notes = self.notes.iter().filter(move |note| note.0 == at);
            let notes = notes.map(|(_, why)| format!("{mark} {why}"));
            notes.chain(std::iter::once(self.line(step, screen)))
        });
        steps.collect()
    }

    fn line(&self, step: &Progress, screen: Screen) -> String {
        let took = step.duration_ms.map(|ms| span(Duration::from_millis(ms - ms % 1000)));
        let took = took.map(|took| format!(" ({took})")).unwrap_or_default();
        let what = doing(&step.phase);
        let without = step.other.get("warning").and_then(Value::as_str);
        let without = without.map(|text| format!("; {}", visible(text))).unwrap_or_default();
        match step.state.as_str() {
            "running" => format!("☐ {what}{}", self.detail(step)),
            "successful" => {
                let mark = screen.paint(Tone::Good, "✓");
                format!("{mark} {}{took}{without}", done(&step.phase))
            }
            "paused" => format!("– {what}{took}, paused{without}"),
            "warning" => format!("{} {}", screen.paint(Tone::Odd, "!"), message(step)),
            "failed" => {
                let why = step.error.as_deref().map(visible);
                let why = why.or(step.message.as_deref().map(visible)).unwrap_or_default();
                format!("{} {what}{took}: {why}", screen.paint(Tone::Bad, "✗"))
            }
            state => format!("  {what}{took}, {}", visible(state)),
        }
    }

    /// How far the running step is.
    fn detail(&self, step: &Progress) -> String {
        let stream = self.bytes.as_ref().map(|bytes| {
            if bytes.current_progress == Some(0) && bytes.total_progress == Some(0) {
                return "starting".to_owned();
            }
            let percent = units::percent(bytes.current_progress, bytes.total_progress);
            let percent = percent.map(|percent| format!("{percent}%"));
            let eta = bytes.eta_ms.map(|ms| span(Duration::from_millis(ms - ms % 1000)));
            let eta = eta.map(|eta| format!("ETA {eta}"));
            let rate = bytes.transfer_bytes_second.map(units::rate);
            [percent, eta, rate].into_iter().flatten().collect::<Vec<_>>().join(" ")
        });
        let percent = units::percent(step.current_progress, step.total_progress);
        let parts = match (step.phase.as_str(), stream) {
            ("sync", Some(stream)) => stream,
            (_, Some(stream)) => {
                format!("{}% re-synchronizing {stream}", percent.unwrap_or_default())
            }
            (_, None) => {
                let percent = percent.map(|percent| format!("{percent}% ")).unwrap_or_default();
                format!("{percent}{}", message(step))
            }
        };
        let parts = parts.trim_end();
        if parts.is_empty() { String::new() } else { format!(" ({parts})") }
    }
}

fn message(step: &Progress) -> String {
    let text = step.message.as_deref().map(visible).unwrap_or_default();
    text.chars().take(MESSAGE).collect()
}

/// What a phase does, in the words of RFD 34's stories.
fn doing(phase: &str) -> String {
    match phase {
        "begin" => "making a reservation".to_owned(),
        "sync" => "synchronizing filesystems".to_owned(),
        "switch" => "switching instances".to_owned(),
        "abort" => "aborting".to_owned(),
        "rollback" => "rolling back".to_owned(),
        phase => visible(phase),
    }
}

fn done(phase: &str) -> String {
    match phase {
        "abort" => "aborted".to_owned(),
        "rollback" => "rolled back".to_owned(),
        phase => doing(phase),
    }
}

/// What is on the screen: the last line is rewritten until another one follows it.
#[derive(Debug, Default)]
pub(super) struct Frame {
    /// Lines that stand.
    fixed: usize,
    is_open: bool,
}

impl Frame {
    /// Returns what brings these lines to the screen.
    pub(super) fn draw(&mut self, lines: &[String]) -> String {
        let mut text = String::new();
        for (at, line) in lines.iter().enumerate().skip(self.fixed) {
            text += &format!("\r\u{1b}[2K{line}");
            if at + 1 < lines.len() {
                text.push('\n');
            }
        }
        self.fixed = self.fixed.max(lines.len().saturating_sub(1));
        self.is_open |= lines.len() > self.fixed;
        text
    }

    /// Returns what begins a new line after the last one.
    pub(super) fn close(&mut self) -> &'static str {
        if std::mem::take(&mut self.is_open) {
            self.fixed += 1;
            return "\n";
        }
        ""
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    const PLAIN: Screen = Screen { is_terminal: true, colour: false };

    fn migration(history: Value) -> Migration {
        serde_json::from_value(json!({"vm_uuid": "u", "progress_history": history})).unwrap()
    }

    fn progress(value: Value) -> Progress {
        serde_json::from_value(value).unwrap()
    }

    fn entry(phase: &str, state: &str, ms: u64) -> Value {
        json!({"phase": phase, "state": state, "duration_ms": ms, "started_timestamp": "x"})
    }

    #[test]
    fn the_steps_of_the_rfds_stories() {
        let mut steps = Steps::default();
        let begun = entry("begin", "successful", 198_000);
        let mut running = entry("sync", "running", 5);
        steps.reread(&migration(json!([begun, running])));
        assert_eq!(
            steps.lines(PLAIN),
            ["✓ making a reservation (3m18s)", "☐ synchronizing filesystems"]
        );
        let bytes = progress(json!({
            "phase": "sync", "state": "running", "current_progress": 13, "total_progress": 100,
            "eta_ms": 5_580_000, "transfer_bytes_second": 62_500_000,
        }));
        assert!(!steps.take(&bytes));
        let want = "☐ synchronizing filesystems (13% ETA 1h33m 59.6MB/s)";
        assert_eq!(steps.lines(PLAIN)[1], want);
        running = entry("sync", "successful", 6_727_000);
        let switch = json!({
            "phase": "switch", "state": "running", "current_progress": 3, "total_progress": 100,
            "message": "stopping the instance", "started_timestamp": "y",
        });
        assert!(steps.take(&progress(switch.clone())), "a new entry");
        steps.reread(&migration(json!([begun, running, switch])));
        let last = |steps: &Steps| steps.lines(PLAIN).pop().unwrap();
        assert_eq!(steps.lines(PLAIN)[1], "✓ synchronizing filesystems (1h52m)");
        assert_eq!(last(&steps), "☐ switching instances (3% stopping the instance)");
        assert!(!steps.take(&bytes));
        assert_eq!(
            last(&steps),
            "☐ switching instances (3% re-synchronizing 13% ETA 1h33m 59.6MB/s)"
        );
        let mark = json!({"phase": "switch", "current_progress": 60, "message": "reserving"});
        assert!(!steps.take(&progress(mark)));
        let switched = entry("switch", "successful", 268_000);
        steps.reread(&migration(json!([begun, running, switched])));
        assert_eq!(last(&steps), "✓ switching instances (4m28s)");
        assert!(steps.take(&bytes), "nothing runs that it could belong to");
    }

    #[test]
    fn a_step_that_failed_was_paused_or_whose_record_went() {
        let mut steps = Steps::default();
        let failed = json!({"phase": "sync", "state": "failed", "error": "out of\nspace", "duration_ms": 1500});
        let warning =
            json!({"phase": "begin", "state": "warning", "message": "the image is copied"});
        steps.reread(&migration(json!([warning, failed])));
        let failed_now = "✗ synchronizing filesystems (1s): out of\\u000aspace";
        assert_eq!(steps.lines(PLAIN), ["! the image is copied", failed_now]);
        steps.reread(&migration(json!([
            warning,
            failed,
            entry("sync", "paused", 500),
            json!({"phase": "switch", "state": "successful", "warning": "a:b is not\ncarried"}),
            entry("abort", "running", 0)
        ])));
        let want = [
            "! the image is copied",
            "– synchronizing filesystems (0s), paused",
            "✓ switching instances; a:b is not\\u000acarried",
            "☐ aborting",
        ];
        assert_eq!(steps.lines(PLAIN), want);
        steps.end("successful");
        assert_eq!(steps.lines(PLAIN)[3], "✓ aborted (0s)");
    }

    #[test] // M143
    fn an_attempt_that_failed_stands_above_its_step_and_no_rate_is_repeated() {
        let mut steps = Steps::default();
        let running = json!({"phase": "sync", "state": "running", "started_timestamp": "x"});
        steps.reread(&migration(json!([running])));
        let bytes = json!({"current_progress": 100, "total_progress": 100, "transfer_bytes_second": 1_258_291});
        assert!(!steps.take(&progress(bytes)));
        assert_eq!(steps.lines(PLAIN), ["☐ synchronizing filesystems (100% 1.2MB/s)"]);
        let mut again = migration(json!([running]));
        let why = "migration-agent on the source's node does not answer (attempt 1 of 10 failed; since 0 s, the next in 4 s)";
        again.other.insert("waits_for".to_owned(), json!(why));
        let want = [format!("! {why}"), "☐ synchronizing filesystems".to_owned()];
        for second in 0..2 {
            again
                .other
                .insert("journal".to_owned(), json!({"again": {"failed": 1, "next": second}}));
            steps.reread(&again);
            assert_eq!(steps.lines(PLAIN), want);
        }
        steps.reread(&migration(json!([running])));
        let none = json!({"current_progress": 0, "total_progress": 0, "transfer_bytes_second": 0});
        assert!(!steps.take(&progress(none)));
        assert_eq!(steps.lines(PLAIN)[1], "☐ synchronizing filesystems (starting)");
    }

    #[test]
    fn only_the_last_line_is_rewritten() {
        let lines = |texts: &[&str]| texts.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let mut frame = Frame::default();
        assert_eq!(frame.draw(&[]), "");
        assert_eq!(frame.close(), "");
        assert_eq!(frame.draw(&lines(&["✓ a", "☐ b"])), "\r\u{1b}[2K✓ a\n\r\u{1b}[2K☐ b");
        assert_eq!(frame.draw(&lines(&["✓ a", "☐ b 1%"])), "\r\u{1b}[2K☐ b 1%");
        assert_eq!(frame.draw(&lines(&["✓ a", "✓ b", "☐ c"])), "\r\u{1b}[2K✓ b\n\r\u{1b}[2K☐ c");
        assert_eq!(frame.close(), "\n");
        assert_eq!(frame.close(), "");
        assert_eq!(frame.draw(&lines(&["✓ a", "✓ b", "✓ c"])), "");
        assert_eq!(frame.draw(&lines(&["✓ a", "✓ b", "✓ c", "☐ d"])), "\r\u{1b}[2K☐ d");
    }
}
