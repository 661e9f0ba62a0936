// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a person does next about a migration. Pure.

use daemon::cli::TERMINAL;
use daemon::cli::screen::visible;
use migration_core::intent::End;
use migration_core::machine::Wait;
use migration_core::need::{silent, waits};
use migration_core::record::{Phase, Record, State};
use sdc_clients::migrations::Migration;
use serde_json::Value;

/// Characters of a uuid that stand for it where nothing was typed.
const SHORT: usize = 8;

/// Returns why a migration waits for a person and the command that goes on with it, in lines; of one whose step is
/// tried again, the command that ends or shows that. The VM is called as it was typed.
pub(super) fn step(migration: &Migration, typed: Option<&str>) -> Option<String> {
    let raw = serde_json::to_value(migration).ok()?;
    // A record in an unknown form is shown as it is.
    let record = Record::read(&raw).ok()?;
    let vm = typed.filter(|it| is_word(it)).or(migration.vm_uuid.get(..SHORT))?;
    if let Some(silence) = silence(&record, &raw, vm) {
        return Some(silence);
    }
    match waits(&record) {
        Some(why) => {
            let need = daemon::needs::find(why.name()?)?;
            Some(format!("{}.\nNext: {}", folded(need.says), need.command_for(&[("VM", vm)])))
        }
        None => {
            let hint = hint(&record.intent.again.as_ref()?.why, &raw).unwrap_or_default();
            Some(match can_abort(&record) {
                true => format!(
                    "The step is tried again by itself.{hint}\nTo end it, the VM staying where it is:\n\
                     Next: sdc-migrate abort --force {vm}"
                ),
                false => format!(
                    "The step is tried again by itself, and goes on once what it waits for answers.{hint}\n\
                     Next: sdc-migrate watch {vm}"
                ),
            })
        }
    }
}

/// Returns the same, and where the VM is now.
pub(super) fn told(migration: &Migration, typed: Option<&str>) -> Option<String> {
    let next = step(migration, typed)?;
    let place = place(migration).map(|place| folded(&place) + ".\n");
    Some(place.unwrap_or_default() + &next)
}

/// Returns the same of one that waits for a node whose agent is silent.
pub(super) fn of_silence(migration: &Migration) -> Option<String> {
    let record = Record::read(&serde_json::to_value(migration).ok()?).ok()?;
    silent(&record).and_then(|_| told(migration, None))
}

/// Returns where the VM is now and whether it runs, where the service says that.
pub(super) fn place(migration: &Migration) -> Option<String> {
    migration.other.get("where").and_then(Value::as_str).map(visible)
}

/// Returns the same of one that waits for a node whose agent is silent: what was last heard of it, and the command that
/// goes on without it, with the flags that it needs now.
fn silence(record: &Record, raw: &Value, vm: &str) -> Option<String> {
    let (why, end) = silent(record)?;
    let need = daemon::needs::find(why.name()?)?;
    let field = |name: &str| raw[format!("{end}_server_{name}")].as_str();
    let (cn, uuid) = (field("hostname").or_else(|| field("uuid"))?, field("uuid")?);
    let cn = if is_word(cn) { cn } else { uuid };
    let told = &raw["silence"];
    let told = (told["state"] == need.name).then_some(told);
    let signs = told.and_then(|it| it["signs"].as_str());
    let signs = signs.map(|it| folded(&visible(it)) + ".\n").unwrap_or_default();
    let command = told.and_then(|it| it["command"].as_str()).map(|command| {
        let words = command.split(' ').map(|word| match word {
            word if Some(word) == raw["vm_uuid"].as_str() => vm,
            word if word == uuid => cn,
            word => word,
        });
        visible(&words.collect::<Vec<_>>().join(" "))
    });
    let command = command.unwrap_or_else(|| need.command_for(&[("VM", vm), ("CN", cn)]));
    let shows = daemon::needs::find("migration-agent-silent")?.command;
    let see = match command == shows {
        true => String::new(),
        false => format!("To see why, on {}: {shows}\n", visible(cn)),
    };
    Some(format!("{}.\n{signs}{see}Next: {command}", folded(need.says)))
}

/// Returns what shows why an agent is silent, if a step waits for one, and on which node: no other program knows it.
fn hint(why: &str, raw: &Value) -> Option<String> {
    let is_silent = |end: &End| why == Wait::Silent(*end).to_string();
    let end = [End::Source, End::Target].into_iter().find(is_silent)?;
    let field = |name: &str| raw[format!("{end}_server_{name}")].as_str();
    let node = field("hostname").or_else(|| field("uuid"))?;
    let command = daemon::needs::find("migration-agent-silent")?.command;
    Some(format!("\nTo see why, on {}: {command}", visible(node)))
}

/// What comes next, of an order that was refused.
#[derive(Debug)]
pub(super) struct NextStep(pub String);

impl std::fmt::Display for NextStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the order was refused")
    }
}

/// Returns what is known of the VM whose order failed so, in lines of its own.
pub(super) fn after(error: &anyhow::Error) -> String {
    error.downcast_ref::<NextStep>().map(|NextStep(text)| format!("\n{text}")).unwrap_or_default()
}

/// Returns a sentence in lines of a terminal's width.
fn folded(says: &str) -> String {
    let mut lines = vec![String::new()];
    for word in says.split(' ') {
        let line = lines.last_mut().filter(|line| line.len() + word.len() + 1 < TERMINAL);
        match line {
            Some(line) if line.is_empty() => *line = capital(word),
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// Returns a word as it begins a sentence.
fn capital(word: &str) -> String {
    let mut rest = word.chars();
    rest.next().map(|first| first.to_uppercase().chain(rest).collect()).unwrap_or_default()
}

/// Returns true if a shell takes this as one word.
pub(super) fn is_word(typed: &str) -> bool {
    typed.chars().all(|it| it.is_ascii_alphanumeric() || "._-".contains(it))
        && !typed.starts_with('-')
}

/// Returns true if a migration that runs can be ended: before the new copy is shown.
fn can_abort(record: &Record) -> bool {
    let is_before = matches!(record.phase, Phase::Begin | Phase::Sync | Phase::Switch);
    record.state == State::Running && is_before && !record.intent.target_shown
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn of_a_silent_agent_the_node_is_named_and_the_command_that_shows_why() {
        let why = Wait::Silent(End::Target).to_string();
        let raw =
            serde_json::json!({"target_server_uuid": "753b", "target_server_hostname": "cn-2"});
        let told = "\nTo see why, on cn-2: svcs -xv migration-agent";
        assert_eq!(hint(&why, &raw).as_deref(), Some(told));
        assert_eq!(hint("CNAPI does not answer", &raw), None);
    }

    #[test] // M270
    fn of_a_silent_node_the_command_has_the_names_that_people_type() {
        let uuid = "753b0c87-f19f-440c-9cbb-de0fed562ecb";
        let vm = "1aa41ab0-2046-4d53-a82c-b9876136d4f1";
        let command = format!("sdc-migrate rollback --target-dead {uuid} --discard {vm} --really");
        let signs = "CNAPI had the last heartbeat of cn-2 9 s ago";
        let at = "2026-03-01T02:00:00.000Z";
        let mut raw = serde_json::json!({
            "action": "begin", "automatic": false, "created_timestamp": at, "id": uuid, "num_sync_phases": 1,
            "progress_history": [], "source_server_uuid": vm, "phase": "rollback", "state": "running", "vm_uuid": vm,
            "target_server_uuid": uuid,
            "journal": {"target_silent": at, "target_shown": true, "target_booted": true},
        });
        raw["silence"] = serde_json::json!({"state": "migration-target-silent", "command": command, "signs": signs});
        raw["where"] = "it is on cn-2, which has not answered".into();
        raw["target_server_hostname"] = "cn-2".into();
        let told = of_silence(&serde_json::from_value(raw).unwrap()).unwrap();
        assert!(
            told.starts_with("It is on cn-2, which has not answered.\nThe new node, where"),
            "{told}"
        );
        let end = format!(
            "{signs}.\nTo see why, on cn-2: svcs -xv migration-agent\n\
             Next: sdc-migrate rollback --target-dead cn-2 --discard 1aa41ab0 --really"
        );
        assert!(told.ends_with(&end), "{told}");
    }

    #[test]
    fn what_comes_next_fits_a_terminal() {
        for need in daemon::needs::NEEDS.iter().filter(|need| need.name.starts_with("migration-")) {
            let command = need.command_for(&[("VM", "12345678"), ("CN", "cn-123456789")]);
            let text = format!("{}.\nNext: {command}", folded(need.says));
            assert!(text.lines().all(|line| line.len() <= TERMINAL), "{text}");
            assert_eq!(
                folded(need.says).to_lowercase().replace('\n', " "),
                need.says.to_lowercase()
            );
        }
    }
}
