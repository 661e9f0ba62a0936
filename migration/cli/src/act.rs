// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Begin, sync, switch and the other actions: ask, order, watch.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use daemon::cli::screen::{self, visible};
use daemon::exit;
use sdc_clients::migrations::{Answer, Estimate, Migration, Migrations, Options};
use sdc_clients::{Class, Error};
use tokio::time::timeout;

use super::args::{Consent, NAME, Placed, Rate};
use super::ask::{Stake, called, confirm, is_asked, takes};
use super::operator::Way;
use super::services::{Services, alias};
use super::show::Style;
use super::steps::waits_for;
use super::watching::{Watched, follow};
use super::{loss, next};
use migration_core::machine::{Action, Call, admit};
use migration_core::record::Record;
use migration_core::time::Time;

/// Ctrl-C: 128 and SIGINT.
const LEFT: u8 = 130;
/// Whoever leaves does not wait longer for a name.
const NAMED: Duration = Duration::from_secs(1);
/// What was asked was not wanted.
const REFUSED: u8 = exit::FAILED;

/// The commands of one run.
pub(super) struct Act<'a> {
    pub services: &'a Services,
    pub style: Style,
    /// Whether an order is watched until it ends.
    pub waits: bool,
}

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
        let estimate = self.estimate(&vm, cn, "The migration").await?;
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
        let text = format!("This will migrate instance {name} at the time {time:?}.");
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
        really: bool,
        Rate { bwlimit }: Rate,
        consent: Consent,
    ) -> anyhow::Result<ExitCode> {
        let vm = self.services.vm(vm).await?;
        let source_dead = self.services.any_node(source_dead).await?;
        let options =
            Options { source_dead: source_dead.clone(), really, bwlimit, ..Options::default() };
        if source_dead.is_none() && !is_asked(consent) {
            return self.order(&vm, "switch", &options).await;
        }
        let migration = self.admitted(&vm, Action::Switch, &options).await?;
        let name = self.name(&vm).await;
        let (text, stake) = match &source_dead {
            Some(cn) => {
                let says = self.dead(&vm, cn, really).await?;
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
        force: bool,
        consent: Consent,
    ) -> anyhow::Result<ExitCode> {
        let vm = self.services.vm(vm).await?;
        let options = Options { force, ..Options::default() };
        let migration = match force {
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
        let text = format!(
            "This will abort migration of instance {}.\nYou will need to start a new migration if you wish \
             to migrate this instance.",
            self.name(&vm).await
        );
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
            // Where the nodes do not answer, the age alone is known.
            let compared = self.services.migrations.verify(&vm).await.ok();
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
        force: bool,
        consent: Consent,
    ) -> anyhow::Result<ExitCode> {
        let vm = self.services.vm(vm).await?;
        let options = Options { force, ..Options::default() };
        if !force && !is_asked(consent) {
            return self.order(&vm, "finalize", &options).await;
        }
        let migration = self.admitted(&vm, Action::Finalize, &options).await?;
        let name = self.name(&vm).await;
        let source = migration.source_server_uuid.as_deref().map(visible);
        let source = source.unwrap_or("its old node".to_owned());
        let text = format!(
            "This will delete the copy of instance {name} on {source}.\nThere is no rollback after that."
        );
        let (text, stake) = match force {
            true => (text + "\nIt may be the only whole copy: see verify.", Stake::Data),
            false => (text, Stake::Undoable),
        };
        self.ordered(&vm, "finalize", &text, stake, consent, &options).await
    }

    /// Adopts.
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

    /// Watches.
    pub(super) async fn watch(&self, vm: &str, action: Option<&str>) -> anyhow::Result<ExitCode> {
        let watched = match follow(&self.services.migrations, vm, action, self.style).await {
            Err(blind) => return Err(self.explained(vm, blind.into()).await),
            Ok(watched) => watched,
        };
        match watched {
            Watched::Ended(ending) => {
                if ending.is_failure {
                    eprintln!("{}", ending.text);
                } else {
                    say(&ending.text)?;
                }
                self.tell_next(vm).await;
                Ok(if ending.is_failure { ExitCode::from(exit::FAILED) } else { ExitCode::SUCCESS })
            }
            Watched::Left => {
                let alias = match self.is_for_people() {
                    true => timeout(NAMED, self.alias(vm)).await.ok().flatten(),
                    false => None,
                };
                let vm = alias.as_deref().unwrap_or(vm);
                eprintln!(
                    "The migration goes on. Watch it with: {NAME} watch {vm}\nPause or abort it with: {NAME} \
                     pause {vm}, {NAME} abort {vm}"
                );
                Ok(ExitCode::from(LEFT))
            }
        }
    }

    /// Returns the migration that an action is about, an empty one if there is none yet. What the action is refused
    /// for anyway is reported before any question, and before a missing flag.
    async fn admitted(
        &self,
        vm: &str,
        action: Action,
        options: &Options,
    ) -> anyhow::Result<Migration> {
        let found = match self.services.migrations.get(vm).await {
            Ok(found) => Some(found),
            Err(error) if error.is_not_found_resource() => None,
            Err(error) => return Err(error.into()),
        };
        let raw = found.as_ref().map(serde_json::to_value).transpose()?;
        // A record in a form that is not known here is the service's to judge.
        let record = raw.as_ref().map(Record::read).transpose();
        if let Ok(record) = record {
            let call = Call { is_forced: options.force, ..Call::new(action) };
            if let Err(refusal) = admit(record.as_ref(), call) {
                return Err(self.explained(vm, refusal.into()).await);
            }
        }
        Ok(found.unwrap_or_default())
    }

    /// Returns the last contact with a node that is to be declared dead, as a sentence.
    /// Fails if it answers, or may be alive and no operator has seen that it is off.
    async fn dead(&self, vm: &str, cn: &str, really: bool) -> anyhow::Result<String> {
        let signs = self.services.migrations.signs(vm).await?;
        let sign = std::iter::once(signs.source).chain(signs.target).find(|sign| sign.cn == cn);
        let Some(sign) = sign else { anyhow::bail!("{cn} is not a node of this migration") };
        match sign.alive {
            Some(why) if sign.answers || !really => anyhow::bail!("{}", visible(&why)),
            _ => Ok(format!("{}.", visible(&sign.says))),
        }
    }

    async fn options(&self, placed: &Placed) -> anyhow::Result<Options> {
        Ok(Options {
            override_server_uuid: self.services.any_node(placed.cn.as_deref()).await?,
            affinity: placed.affinity.clone(),
            bwlimit: placed.rate.bwlimit,
            ..Options::default()
        })
    }

    async fn ordered(
        &self,
        vm: &str,
        action: &str,
        text: &str,
        stake: Stake,
        consent: Consent,
        options: &Options,
    ) -> anyhow::Result<ExitCode> {
        let text = self.services.hosts().await.in_text(text);
        match confirm(&text, stake, consent)? {
            true => self.order(vm, action, options).await,
            false => Ok(ExitCode::from(REFUSED)),
        }
    }

    /// Orders an action and watches it.
    pub(super) async fn order(
        &self,
        vm: &str,
        action: &str,
        options: &Options,
    ) -> anyhow::Result<ExitCode> {
        let answer = self.act(vm, action, options).await?;
        let Some(job) = answer.job_uuid else {
            return say(match action {
                "finalize" => "Migration was finalized",
                "abort" => "Migration was aborted",
                _ => "OK",
            });
        };
        say(&format!("# Migration {action} running in job {job}"))?;
        for warning in &answer.warnings {
            say(&format!("# Warning: {warning}"))?;
        }
        if let Some(why) = answer.migration.as_ref().and_then(waiting) {
            say(&why)?;
        }
        if !self.waits {
            if self.is_for_people() {
                let alias = self.alias(vm).await;
                eprintln!("Next: {NAME} watch {}", alias.as_deref().unwrap_or(vm));
            }
            return Ok(ExitCode::SUCCESS);
        }
        self.watch(vm, Some(action)).await
    }

    /// Orders an action.
    async fn act(&self, vm: &str, action: &str, options: &Options) -> anyhow::Result<Answer> {
        match self.services.migrations.act(vm, action, options).await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.explained(vm, error.into()).await),
        }
    }

    /// Adds to a refusal what is known of the VM, for people: what comes next, or that it does not migrate.
    pub(super) async fn explained(&self, vm: &str, refusal: anyhow::Error) -> anyhow::Error {
        if !self.is_for_people() {
            return refusal;
        }
        let known = match self.services.migrations.get(vm).await {
            Ok(migration) => next::step(&migration, self.alias(vm).await.as_deref()),
            Err(error) if error.is_not_found_resource() => self.services.known(vm).await,
            Err(_) => None,
        };
        match known {
            Some(known) => refusal.context(next::Known(known)),
            None => refusal,
        }
    }

    fn is_for_people(&self) -> bool {
        self.style.ansi && self.style.screen.is_terminal
    }

    /// Returns how people call a VM; an unknown one by its uuid.
    async fn name(&self, vm: &str) -> String {
        let found = self.services.vmapi.get_vm(vm).await.ok();
        called(vm, found.as_ref().and_then(alias))
    }

    /// Returns the alias of a VM where no other VM is meant by it.
    async fn alias(&self, vm: &str) -> Option<String> {
        let found = self.services.vmapi.get_vm(vm).await.ok()?;
        let alias = alias(&found)?;
        let is_meant = next::is_word(alias) && self.services.vm(alias).await.ok()? == vm;
        is_meant.then(|| alias.to_owned())
    }

    /// Tells people what comes next; scripts know.
    async fn tell_next(&self, vm: &str) {
        if !self.is_for_people() {
            return;
        }
        let Ok(migration) = self.services.migrations.get(vm).await else { return };
        if let Some(next) = next::step(&migration, self.alias(vm).await.as_deref()) {
            eprintln!("{next}");
        }
    }

    /// Returns what it takes, as a sentence. An obstacle is an error: there is nothing to ask.
    async fn estimate(&self, vm: &str, cn: Option<&str>, what: &str) -> Result<String, Error> {
        match self.services.migrations.estimate(vm, cn).await {
            Ok(estimate) => Ok(takes(what, &estimate)),
            Err(error) if matches!(error.class(), Class::Protocol | Class::Server) => {
                Ok(format!("How long it takes is not known: {}.", error.message()))
            }
            Err(error) => Err(error),
        }
    }

    /// Prints an estimate as JSON.
    pub(super) async fn print_estimate(
        &self,
        vm: &str,
        cn: Option<&str>,
        full: bool,
    ) -> anyhow::Result<ExitCode> {
        let vm = self.services.vm(vm).await?;
        let cn = self.services.any_node(cn).await?;
        let value = match full {
            true => {
                let found: Estimate = self.services.migrations.estimate(&vm, cn.as_deref()).await?;
                serde_json::to_value(&found)?
            }
            false => {
                let size = self.services.migrations.estimate_size(&vm, cn.as_deref()).await?;
                serde_json::json!({ "size": size })
            }
        };
        say(&format!("{value:#}"))
    }
}

/// An abort has reported what it could not do.
fn has_failed_to_abort(migration: &Migration) -> bool {
    (migration.phase.as_str(), migration.state.as_str()) == ("abort", "failed")
}

/// Returns the time.
pub(super) fn now() -> Time {
    Time::from_millis(daemon::wall::now().as_millisecond())
}

/// Prints a line.
pub(super) fn say(line: &str) -> anyhow::Result<ExitCode> {
    screen::write(&format!("{line}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// What a migration that is queued waits for.
fn waiting(migration: &Migration) -> Option<String> {
    waits_for(migration).map(|why| format!("Queued: {why}"))
}
