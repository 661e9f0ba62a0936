// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One action for many migrations: those of a node, or all that wait.

use std::process::ExitCode;

use daemon::exit;
use daemon::text::counted;
use migration_core::machine::{Action, Call, admit};
use migration_core::need::waits;
use migration_core::record::Record;
use sdc_clients::migrations::{Migration, Options};

use super::args::{Consent, NAME, Which};
use super::ask::{Stake, confirm};
use super::names::Names;
use super::order::{Act, say};

/// So many are named in a question.
const NAMED: usize = 10;

/// Does the same to each migration that takes it. One that fails does not keep the others.
pub(super) async fn each(
    act: &Act<'_>,
    which: &Which,
    (action, options): (Action, Options),
    consent: Consent,
) -> anyhow::Result<ExitCode> {
    let cn = match &which.cn {
        Some(cn) => Some(act.services.node(cn).await?),
        None => None,
    };
    let all = act.services.migrations.list(&Default::default()).await?;
    let call = Call { is_forced: options.force, ..Call::new(action) };
    let meant: Vec<Migration> =
        all.into_iter().filter(|one| is_meant(one, cn.as_deref(), call)).collect();
    let verb = action.name();
    if meant.is_empty() {
        return say(&format!("There is no migration to {verb}"));
    }
    let names = act.services.names(&meant).await;
    let (text, stake) = question(action, &meant, &names);
    if !confirm(&text, stake, consent)? {
        return Ok(ExitCode::from(exit::FAILED));
    }
    let (mut done, mut failed) = (0, 0);
    for one in &meant {
        say(&format!("{}:", names.vm(&one.vm_uuid)))?;
        let ended = act.order(&one.vm_uuid, verb, &options).await;
        let is_done = match ended {
            Ok(code) => code == ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{NAME}: {error:#}");
                false
            }
        };
        *(if is_done { &mut done } else { &mut failed }) += 1;
    }
    say(&format!("{done} done, {failed} failed"))?;
    Ok(ExitCode::from(if failed == 0 { 0 } else { exit::FAILED }))
}

/// Returns true of a migration that takes the action, and is of the node or, without one, waits for a person.
fn is_meant(one: &Migration, cn: Option<&str>, call: Call) -> bool {
    let raw = serde_json::to_value(one).unwrap_or_default();
    // A record in an unknown form is not acted on in bulk.
    let Ok(record) = Record::read(&raw) else { return false };
    let is_of = |cn: &str| {
        if call.action == Action::Rollback {
            return one.source_server_uuid.as_deref() == Some(cn); // it goes back there
        }
        [&one.source_server_uuid, &one.target_server_uuid]
            .iter()
            .any(|it| it.as_deref() == Some(cn))
    };
    // A running migration waits for no person, and is what a pause is for.
    let is_wanted = match cn {
        Some(cn) => is_of(cn),
        None => call.action == Action::Pause || waits(&record).is_some(),
    };
    is_wanted && admit(Some(&record), call).is_ok()
}

fn question(action: Action, meant: &[Migration], names: &Names) -> (String, Stake) {
    let mut named: Vec<&str> = meant.iter().take(NAMED).map(|one| names.vm(&one.vm_uuid)).collect();
    let more = format!("and {} more", meant.len().saturating_sub(NAMED));
    if meant.len() > NAMED {
        named.push(&more);
    }
    let named = named.join(", ");
    let counted = |one, more| counted(meant.len(), one, more);
    match action {
        Action::Finalize => (
            format!(
                "This will delete the old copies of {}: {named}.\nThere is no rollback after that.",
                counted("instance", "instances")
            ),
            Stake::Data,
        ),
        action => {
            let count = counted("migration", "migrations");
            (format!("This will {} {count}: {named}.", action.name()), Stake::Undoable)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test] // M145
    fn what_is_meant_takes_the_action_and_is_of_the_node_or_waits() {
        let ids = ["id", "vm_uuid"]
            .map(|name| (name.to_owned(), json!("0b4a4a3e-8b7c-4a09-9c3e-2a5d8f5e0c11")));
        let [source, target, other] =
            ["1", "2", "3"].map(|n| format!("0000000{n}-0000-4000-8000-000000000000"));
        let one = |phase: &str, state: &str| {
            let mut raw = json!({"source_server_uuid": source, "target_server_uuid": target, "phase": phase,
                "state": state, "automatic": false, "created_timestamp": "2026-03-01T00:00:00.000Z"});
            raw.as_object_mut().unwrap().extend(ids.clone());
            serde_json::from_value::<Migration>(raw).unwrap()
        };
        let (finalize, abort, pause) =
            (Call::new(Action::Finalize), Call::new(Action::Abort), Call::new(Action::Pause));
        let switched = one("switch", "successful");
        assert!(
            is_meant(&switched, None, finalize) && is_meant(&switched, Some(&source), finalize)
        );
        assert!(
            is_meant(&switched, Some(&target), finalize)
                && !is_meant(&switched, Some(&other), finalize)
        );
        assert!(!is_meant(&switched, None, abort), "it takes no abort any more");
        let paused = one("sync", "paused");
        assert!(is_meant(&paused, None, abort) && !is_meant(&paused, None, finalize));
        let back = Call::new(Action::Rollback);
        let switched = one("switch", "successful");
        assert!(
            is_meant(&switched, Some(&source), back) && !is_meant(&switched, Some(&target), back)
        );
        let running = one("sync", "running");
        assert!(is_meant(&running, None, pause) && !is_meant(&running, None, abort));
        let (text, stake) = question(Action::Finalize, &vec![switched; 12], &Names::default());
        assert!(
            text.starts_with("This will delete the old copies of 12 instances: 0b4a4a3e, "),
            "{text}"
        );
        assert!(text.contains(", and 2 more.\n") && stake == Stake::Data, "{text}");
    }
}
