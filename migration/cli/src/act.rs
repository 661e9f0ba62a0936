// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The commands that order: begin, sync, switch and the others.

use std::process::ExitCode;

use anyhow::Context as _;
use daemon::cli::screen::visible;
use sdc_clients::migrations::{Migration, Migrations, Options};
use sdc_clients::quoted;

use super::args::{Consent, Placed, Rate};
use super::ask::{Stake, confirm, is_asked};
use super::loss;
use super::operator::Way;
use super::order::{Act, REFUSED, now, say};
use migration_core::machine::Action;

impl Act<'_> {
    /// Begins a migration, or all of it.
    pub(super) async fn begin(&self, placed: &Placed, automatic: bool) -> anyhow::Result<ExitCode> {
        let vm = self.services.vm(&placed.vm).await?;
        let mut options = self.options(placed).await?;
        options.migration_automatic = automatic;
        if !is_asked(placed.consent) {
            return self.order(&vm, "begin", &options).await;
        }
        self.admitted(&vm, Action::Begin, &options).await?;
        let name = self.name(&vm).await;
        let (verb, then) = match automatic {
            true => ("migrate", ""),
            false => ("begin migrating", " After the begin phase you can sync and switch."),
        };
        let cn = options.override_server_uuid.as_deref();
        // An estimate looks for a node as begin without force does.
        let estimate = match placed.force {
            true => "It goes on whichever vm-agent the nodes have.".to_owned(),
            false => self.estimate(&vm, cn, "The migration").await?,
        };
        let text = format!("This will {verb} instance {name}.\n{estimate}{then}");
        self.ordered(&vm, "begin", &text, Stake::Undoable, placed.consent, &options).await
    }

    /// Schedules a migration, or changes its time.
    pub(super) async fn schedule(&self, placed: &Placed, time: &str) -> anyhow::Result<ExitCode> {
        let vm = self.services.vm(&placed.vm).await?;
        let mut options = self.options(placed).await?;
        options.scheduled_timestamp = Some(time.to_owned());
        if is_asked(placed.consent) {
            self.admitted(&vm, Action::Schedule, &options).await?;
        }
        let name = self.name(&vm).await;
        let text = format!("This will migrate instance {name} at the time {}.", quoted(time));
        if !confirm(&text, Stake::Undoable, placed.consent)? {
            return Ok(ExitCode::from(REFUSED));
        }
        let answer = self.act(&vm, "schedule", &options).await?;
        let migration = answer.migration.unwrap_or_default();
        let when = migration.scheduled_timestamp.as_deref().unwrap_or(time);
        if answer.job_uuid.is_none() {
            return say(&format!("The migration switches at {when}"));
        }
        say(&format!("Scheduling migration: it begins and syncs now, and switches at {when}"))?;
        for warning in &answer.warnings {
            say(&format!("# Warning: {warning}"))?;
        }
        self.watch(&vm, Some("schedule")).await
    }

    /// Forgets the time of a switch.
    pub(super) async fn unschedule(&self, vm: &str) -> anyhow::Result<ExitCode> {
        let vm = self.services.vm(vm).await?;
        self.act(&vm, "unschedule", &Options::default()).await?;
        say("The migration is no longer scheduled")
    }

    pub(super) async fn sync(&self, vm: &str, Rate { bwlimit }: Rate) -> anyhow::Result<ExitCode> {
        let vm = self.services.vm(vm).await?;
        self.order(&vm, "sync", &Options { bwlimit, ..Options::default() }).await
    }

    pub(super) async fn pause(&self, vm: &str) -> anyhow::Result<ExitCode> {
        let vm = self.services.vm(vm).await?;
        self.order(&vm, "pause", &Options::default()).await
    }

    /// Switches, also without the node of the source.
    pub(super) async fn switch(
        &self,
        vm: &str,
        source_dead: Option<&str>,
        mut options: Options,
        consent: Consent,
    ) -> anyhow::Result<ExitCode> {
        let vm = self.services.vm(vm).await?;
        let source_dead = self.services.any_node(source_dead).await?;
        options.source_dead.clone_from(&source_dead);
        if source_dead.is_none() && !is_asked(consent) {
            return self.order(&vm, "switch", &options).await;
        }
        let migration = self.admitted(&vm, Action::Switch, &options).await?;
        let name = self.name(&vm).await;
        let is_there = migration.other.get("journal").and_then(|it| it.get("target_shown"));
        let (text, stake) = match &source_dead {
            // It is on the new node already: nothing is lost.
            Some(cn) if is_there.is_some() => {
                let says = self.dead(&vm, cn, options.really).await?;
                (loss::of_old(&name, cn) + "\n" + &says, Stake::Undoable)
            }
            Some(cn) => {
                let says = self.dead(&vm, cn, options.really).await?;
                (loss::of_source(&name, cn, &migration, now()) + "\n" + &says, Stake::Data)
            }
            None => {
                let takes = self.estimate(&vm, None, "The rest of the migration").await?;
                (format!("This will switch instance {name}.\n{takes}"), Stake::Undoable)
            }
        };
        self.ordered(&vm, "switch", &text, stake, consent, &options).await
    }

    pub(super) async fn abort(
        &self,
        vm: &str,
        mut options: Options,
        consent: Consent,
    ) -> anyhow::Result<ExitCode> {
        let vm = self.services.vm(vm).await?;
        options.target_dead = self.services.any_node(options.target_dead.as_deref()).await?;
        let migration = match options.force {
            true => Some(self.admitted(&vm, Action::Abort, &options).await?),
            false => None,
        };
        if let Some(migration) = migration.filter(has_failed_to_abort) {
            let text = loss::of_abort(&self.name(&vm).await, &migration);
            return self.ordered(&vm, "abort", &text, Stake::Data, consent, &options).await;
        }
        if !is_asked(consent) {
            return self.order(&vm, "abort", &options).await;
        }
        self.admitted(&vm, Action::Abort, &options).await?;
        let mut text = format!(
            "This will abort migration of instance {}.\nYou will need to start a new migration if you wish \
             to migrate this instance.",
            self.name(&vm).await
        );
        if let Some(cn) = &options.target_dead {
            let says = self.dead(&vm, cn, options.really).await?;
            text += &format!("\nYou confirm that node {cn} is dead: the copy stays there.\n{says}");
        }
        self.ordered(&vm, "abort", &text, Stake::Undoable, consent, &options).await
    }

    /// Makes the VM of the only copy that is left.
    pub(super) async fn rescue(
        &self,
        vm: &str,
        really: bool,
        consent: Consent,
    ) -> anyhow::Result<ExitCode> {
        let vm = self.services.vm(vm).await?;
        let options = Options { really, ..Options::default() };
        if !is_asked(consent) {
            return self.order(&vm, "rescue", &options).await;
        }
        let text = format!(
            "This will show and start the only copy of instance {} that is left.",
            self.name(&vm).await
        );
        self.ordered(&vm, "rescue", &text, Stake::Undoable, consent, &options).await
    }

    /// Goes back to the source.
    pub(super) async fn rollback(
        &self,
        vm: &str,
        mut options: Options,
        consent: Consent,
    ) -> anyhow::Result<ExitCode> {
        let vm = self.services.vm(vm).await?;
        options.target_dead = self.services.any_node(options.target_dead.as_deref()).await?;
        if !options.discard && !is_asked(consent) {
            return self.order(&vm, "rollback", &options).await;
        }
        let migration = self.admitted(&vm, Action::Rollback, &options).await?;
        let name = self.name(&vm).await;
        let says = match &options.target_dead {
            Some(cn) => Some(self.dead(&vm, cn, options.really).await?),
            None => None,
        };
        let (mut text, stake) = if options.discard {
            // Where the nodes do not answer, the age alone is known; one that is dead is not asked.
            let compared = match options.target_dead {
                None => self.services.migrations.verify(&vm).await.ok(),
                Some(_) => None,
            };
            (loss::of_target(&name, &migration, compared.as_ref(), now()), Stake::Data)
        } else {
            let text = format!(
                "This will move instance {name} back to its old node, with what it wrote since the switch."
            );
            (text, Stake::Undoable)
        };
        text.extend(says.map(|says| format!("\n{says}")));
        self.ordered(&vm, "rollback", &text, stake, consent, &options).await
    }

    /// Deletes the source.
    pub(super) async fn finalize(
        &self,
        vm: &str,
        mut options: Options,
        consent: Consent,
    ) -> anyhow::Result<ExitCode> {
        let vm = self.services.vm(vm).await?;
        options.source_dead = self.services.any_node(options.source_dead.as_deref()).await?;
        if !options.force && !is_asked(consent) {
            return self.order(&vm, "finalize", &options).await;
        }
        let name = self.name(&vm).await;
        // Of a copy that was replaced the service knows more than there is a record of.
        let is_alone = match self.services.migrations.get(&vm).await {
            Err(error) => error.is_not_found_resource() && !error.errors().is_empty(),
            Ok(_) => false,
        };
        if is_alone {
            let text = format!(
                "This will delete the copy of instance {name} that was replaced, on the node that is back."
            );
            return self.ordered(&vm, "finalize", &text, Stake::Undoable, consent, &options).await;
        }
        let migration = self.admitted(&vm, Action::Finalize, &options).await?;
        let source = migration.source_server_uuid.as_deref().map(visible);
        let source = source.unwrap_or("its old node".to_owned());
        let text = match &options.source_dead {
            Some(cn) => {
                let says = self.dead(&vm, cn, options.really).await?;
                loss::of_old(&name, cn) + "\n" + &says
            }
            None => format!("This will delete the copy of instance {name} on {source}."),
        };
        let text = text + "\nThere is no rollback after that.";
        let (text, stake) = match options.force {
            true => (text + "\nIt may be the only whole copy: see verify.", Stake::Data),
            false => (text, Stake::Undoable),
        };
        self.ordered(&vm, "finalize", &text, stake, consent, &options).await
    }

    pub(super) async fn adopt(
        &self,
        vm: &str,
        other: Option<&str>,
        really: bool,
        way: &Way,
    ) -> anyhow::Result<ExitCode> {
        let vm = self.services.vm(vm).await?;
        let other = self.services.any_node(other).await?;
        let migrations = Migrations::new(way.client().await?);
        let adopted = migrations.adopt(&vm, other.as_deref(), really).await;
        let migration = adopted.with_context(|| format!("migration-service at {}", way.place()))?;
        say(&format!("The migration was adopted: {} {}", migration.phase, migration.state))?;
        match migration.error {
            Some(error) => say(&error),
            None => Ok(ExitCode::SUCCESS),
        }
    }
}

/// An abort has reported what it could not do.
fn has_failed_to_abort(migration: &Migration) -> bool {
    (migration.phase.as_str(), migration.state.as_str()) == ("abort", "failed")
}
