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
