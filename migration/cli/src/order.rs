// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One order, for all commands: whether it is admitted, the order itself, the watch, and what people are told beside it.

use std::process::ExitCode;
use std::time::Duration;

use daemon::cli::screen::{self, visible};
use daemon::exit;
use migration_core::machine::{Action, Call, admit};
use migration_core::record::Record;
use migration_core::time::Time;
use sdc_clients::migrations::{Answer, Estimate, Migration, Options};
use sdc_clients::{Class, Error};
use tokio::time::timeout;

use super::args::{Consent, NAME, Placed};
use super::ask::{Stake, called, confirm, takes};
use super::next;
use super::services::{Services, alias};
use super::show::Style;
use super::steps::waits_for;
use super::watching::{Watched, follow};

/// Ctrl-C: 128 and SIGINT.
const LEFT: u8 = 130;
/// A user who interrupts the command does not wait longer for a name.
const NAMED: Duration = Duration::from_secs(1);
/// What was asked was not wanted.
pub(super) const REFUSED: u8 = exit::FAILED;

/// The commands of one run.
pub(super) struct Act<'a> {
    pub services: &'a Services,
    pub style: Style,
    /// Whether an order is watched until it ends.
    pub waits: bool,
}

impl Act<'_> {
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
    pub(super) async fn admitted(
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
            let declares = options.source_dead.is_some() || options.target_dead.is_some();
            let (is_forced, discards) = (options.force, options.discard);
            let call = Call { is_forced, declares, discards, ..Call::new(action) };
            if let Err(refusal) = admit(record.as_ref(), call) {
                return Err(self.explained(vm, refusal.into()).await);
            }
        }
        Ok(found.unwrap_or_default())
    }

    /// Returns the last contact with a node that is to be declared dead, as a sentence.
    /// Fails if it answers, or may be alive and no operator has seen that it is off.
    pub(super) async fn dead(&self, vm: &str, cn: &str, really: bool) -> anyhow::Result<String> {
        let signs = self.services.migrations.signs(vm).await?;
        let sign = std::iter::once(signs.source).chain(signs.target).find(|sign| sign.cn == cn);
        let Some(sign) = sign else { anyhow::bail!("{cn} is not a node of this migration") };
        match sign.alive {
            Some(why) if sign.answers || !really => anyhow::bail!("{}", visible(&why)),
            _ => Ok(format!("{}.", visible(&sign.says))),
        }
    }

    pub(super) async fn options(&self, placed: &Placed) -> anyhow::Result<Options> {
        Ok(Options {
            override_server_uuid: self.services.any_node(placed.cn.as_deref()).await?,
            affinity: placed.affinity.clone(),
            force: placed.force,
            bwlimit: placed.rate.bwlimit,
            max_downtime: placed.down.max_downtime,
            ..Options::default()
        })
    }

    pub(super) async fn ordered(
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
    pub(super) async fn act(
        &self,
        vm: &str,
        action: &str,
        options: &Options,
    ) -> anyhow::Result<Answer> {
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
            Ok(migration) => next::told(&migration, self.alias(vm).await.as_deref()),
            Err(error) if error.is_not_found_resource() => self.services.known(vm).await,
            Err(_) => None,
        };
        match known {
            Some(known) => refusal.context(next::NextStep(known)),
            None => refusal,
        }
    }

    pub(super) fn is_for_people(&self) -> bool {
        self.style.ansi && self.style.screen.is_terminal
    }

    /// Returns how people call a VM; an unknown one by its uuid.
    pub(super) async fn name(&self, vm: &str) -> String {
        let found = self.services.vmapi.get_vm(vm).await.ok();
        called(vm, found.as_ref().and_then(alias))
    }

    /// Returns the alias of a VM where no other VM is meant by it.
    pub(super) async fn alias(&self, vm: &str) -> Option<String> {
        let found = self.services.vmapi.get_vm(vm).await.ok()?;
        let alias = alias(&found)?;
        let is_meant = next::is_word(alias) && self.services.vm(alias).await.ok()? == vm;
        is_meant.then(|| alias.to_owned())
    }

    /// Tells people what comes next; scripts know.
    pub(super) async fn tell_next(&self, vm: &str) {
        if !self.is_for_people() {
            return;
        }
        let Ok(migration) = self.services.migrations.get(vm).await else { return };
        if let Some(next) = next::told(&migration, self.alias(vm).await.as_deref()) {
            eprintln!("{next}");
        }
    }

    /// Returns what it takes, as a sentence. An obstacle is an error: there is nothing to ask.
    pub(super) async fn estimate(
        &self,
        vm: &str,
        cn: Option<&str>,
        what: &str,
    ) -> Result<String, Error> {
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

/// What a migration that is queued waits for.
fn waiting(migration: &Migration) -> Option<String> {
    waits_for(migration).map(|why| format!("Queued: {why}"))
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
