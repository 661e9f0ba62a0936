// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Evacuates a node: reserves it, migrates its VMs as many at once as the node may have, gives it back.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use daemon::cli::hosts::Hosts;
use daemon::cli::screen::visible;
use daemon::cli::{Layout, Progress, screen};
use daemon::exit;
use futures_util::{StreamExt as _, stream};
use sdc_clients::Error;
use sdc_clients::migrations::{MigrationQuery, Options};
use sdc_clients::vmapi::VmQuery;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::plan::{self, Known, Next};
use crate::act::say;
use crate::args::{Consent, NAME};
use crate::ask::{Stake, confirm};
use crate::services::{Services, alias};
use crate::show::Style;

/// Estimates at once: each asks the agents of two nodes.
const AT_ONCE: usize = 8;
/// Migrations at once where the service does not report a limit.
const UNSAID: usize = 1;
/// A service or an agent that is away is waited for so long, for each VM.
const PATIENCE: Duration = Duration::from_secs(600);
/// Looks after which the service is told again that somebody carries the evacuation on.
const UNTOLD: u32 = 6;
/// Ctrl-C: 128 and SIGINT.
const LEFT: u8 = 130;

pub(crate) struct Evacuation<'a> {
    services: &'a Services,
    cn: String,
    style: Style,
    /// What the service was told last.
    told: Option<plan::Count>,
    /// Looks since.
    looks: u32,
    vms: BTreeMap<String, Known>,
    /// The VMs that this run has begun or resumed.
    tried: BTreeSet<String>,
    /// Since when a VM was asked for while somebody was away.
    waits: BTreeMap<String, Instant>,
    hosts: Hosts,
    wanted: Wanted,
}

/// What an operator wants of an evacuation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// All of them go there.
    pub to: Option<String>,
    /// They stay.
    pub excluded: BTreeSet<String>,
    pub at_once: Option<u32>,
}

impl<'a> Evacuation<'a> {
    /// Prepares one; nothing is asked yet.
    pub(crate) fn of(
        services: &'a Services,
        cn: String,
        style: Style,
        wanted: Wanted,
    ) -> Evacuation<'a> {
        let (vms, tried, hosts) = (BTreeMap::new(), BTreeSet::new(), Hosts::default());
        let waits = BTreeMap::new();
        Evacuation { services, cn, style, told: None, looks: 0, vms, tried, waits, hosts, wanted }
    }

    /// Prints what would be done: rows as they come, then their sum; a table that is asked for is printed whole. Exit 1
    /// if a VM cannot move.
    pub(crate) async fn dry_run(&mut self, layout: &Layout) -> anyhow::Result<ExitCode> {
        self.look().await?;
        let is_for_people = !layout.json && !layout.asks_for_table();
        self.hosts = self.services.hosts().await;
        if is_for_people && !layout.no_header {
            screen::write(&plan::title())?;
        }
        self.estimate(is_for_people).await?;
        match is_for_people {
            true => {
                let limit = self.limit().await?;
                screen::write(&plan::sum(&self.vms, &self.cn, &self.tried, limit))?;
            }
            false => self.print(layout)?,
        }
        let count = plan::count(&self.vms, &self.cn, &self.tried);
        Ok(if count.stay > 0 { ExitCode::from(exit::FAILED) } else { ExitCode::SUCCESS })
    }

    /// Moves all VMs, or goes on with that.
    pub(crate) async fn run(
        &mut self,
        layout: &Layout,
        consent: Consent,
    ) -> anyhow::Result<ExitCode> {
        self.look().await?;
        let here = self.vms.values().filter(|known| known.is_here).count();
        let text = format!(
            "This will move {here} instances off node {}, which gets no new ones meanwhile.",
            self.cn
        );
        if !confirm(&text, Stake::Undoable, consent)? {
            return Ok(ExitCode::from(exit::FAILED));
        }
        self.reserve().await?;
        let mut interrupted = pin!(tokio::signal::ctrl_c());
        loop {
            let round = async {
                let row = self.services.migrations.evacuation(&self.cn).await?;
                if row.is_none_or(|row| row.paused) {
                    return Ok(None);
                }
                self.round().await.map(Some)
            };
            let is_over = match round.await {
                Ok(None) => {
                    say("The evacuation was paused or ended by another command")?;
                    return Ok(ExitCode::from(exit::FAILED));
                }
                Ok(Some(is_over)) => Ok(is_over),
                Err(error) => Err(error),
            };
            let is_over = match is_over {
                Ok(is_over) => is_over,
                Err(error) if error.is_retryable() => {
                    eprintln!("{NAME}: {error}; trying again");
                    false
                }
                Err(error) => return Err(error.into()),
            };
            if is_over {
                return self.finish(layout).await;
            }
            // Both arms are cancel-safe.
            tokio::select! {
                () = tokio::time::sleep(self.services.poll) => {}
                _ = &mut interrupted => {
                    eprintln!(
                        "The migrations that run go on, and the node gets no new instances. Go on with: {NAME} \
                         evacuate {0}\nPause it with: {NAME} evacuate {0} --pause. Give the node back with: \
                         {NAME} evacuate {0} --release",
                        self.cn
                    );
                    return Ok(ExitCode::from(LEFT));
                }
            }
        }
    }

    /// Pauses what runs, and lets nothing begin.
    pub(crate) async fn pause(&mut self) -> anyhow::Result<ExitCode> {
        if self.services.migrations.evacuation(&self.cn).await?.is_none() {
            anyhow::bail!("no evacuation of node {} is under way", self.cn);
        }
        self.tell(json!({ "paused": true })).await?;
        let shown = Progress::begin("pausing what syncs");
        // A stream stops when it can, which may take looks.
        let mut asked: BTreeSet<String> = BTreeSet::new();
        loop {
            self.look().await?;
            let runs = self.vms.iter().filter(|(_, known)| {
                plan::next(known, &self.cn, true) == Next::Runs
                    && known.migration.as_ref().is_some_and(|it| it.automatic)
            });
            let runs: Vec<(String, bool)> = runs
                .map(|(vm, known)| {
                    (vm.clone(), known.migration.as_ref().is_some_and(|it| it.phase == "sync"))
                })
                .collect();
            if runs.is_empty() {
                break;
            }
            shown.say(&format!("{} still run; begin and switch end first", runs.len()));
            let syncs = runs.into_iter().filter(|(_, is_sync)| *is_sync).map(|(vm, _)| vm);
            let syncs: BTreeSet<String> = syncs.collect();
            // One that does not sync any more, and does so later, is asked again.
            asked.retain(|vm| syncs.contains(vm));
            for vm in syncs.difference(&asked) {
                let answer = self.services.migrations.act(vm, "pause", &Options::default()).await;
                // It may have ended meanwhile: then the next look says so.
                if let Err(error) = answer.map(drop).or_else(refused) {
                    return Err(error.into());
                }
            }
            asked = syncs;
            tokio::time::sleep(self.services.poll).await;
        }
        drop(shown);
        say(&format!("The evacuation is paused. Go on with: {NAME} evacuate {}", self.cn))
    }

    /// Gives the node back to placement.
    pub(crate) async fn release(&self) -> anyhow::Result<ExitCode> {
        let Some(row) = self.services.migrations.evacuation(&self.cn).await? else {
            return say(&format!("No evacuation of node {} is under way", self.cn));
        };
        if !row.was_reserved {
            self.set_reserved(false).await?;
        }
        self.services.migrations.end_evacuation(&self.cn).await?;
        say(match row.was_reserved {
            true => "The evacuation is over. The node was reserved before, and stays so",
            false => "The evacuation is over. The node may get new instances again",
        })
    }

    /// Lets the node get no new VMs. What it was before is noted first.
    async fn reserve(&self) -> anyhow::Result<()> {
        if self.services.migrations.evacuation(&self.cn).await?.is_some() {
            return Ok(self.tell(json!({ "paused": false })).await?);
        }
        let server = self.services.cnapi()?.get_server(&self.cn).await.context("CNAPI")?;
        let was_reserved = server.reserved == Some(true);
        let mut values = json!({ "was_reserved": was_reserved, "paused": false });
        if let Some(to) = &self.wanted.to {
            values["to"] = json!(to);
        }
        self.tell(values).await?;
        if was_reserved { Ok(()) } else { self.set_reserved(true).await }
    }

    /// Tells the service what is new of it.
    async fn tell(&self, values: Value) -> Result<(), Error> {
        let Value::Object(values) = values else { return Ok(()) };
        self.services.migrations.put_evacuation(&self.cn, &values).await.map(drop)
    }

    /// Tells the service how far it is: when that has changed, and now and then that somebody carries it on.
    async fn count(&mut self) -> Result<plan::Count, Error> {
        let count = plan::count(&self.vms, &self.cn, &self.tried);
        self.looks += 1;
        if self.told != Some(count) || self.looks >= UNTOLD {
            let plan::Count { moved, stay, left } = count;
            self.tell(json!({ "moved": moved, "stay": stay, "left": left })).await?;
            (self.told, self.looks) = (Some(count), 0);
        }
        Ok(count)
    }

    async fn set_reserved(&self, reserved: bool) -> anyhow::Result<()> {
        let Value::Object(change) = json!({ "reserved": reserved }) else { return Ok(()) };
        let cnapi = self.services.cnapi()?;
        cnapi.update_server(&self.cn, &change).await.context("CNAPI does not take `reserved`")
    }

    /// Looks, begins and resumes what may. Returns true if nothing is left to do.
    async fn round(&mut self) -> Result<bool, Error> {
        self.look().await?;
        if self.count().await?.left == 0 {
            return Ok(true);
        }
        let limit = self.limit().await?;
        let starts = plan::starts(&self.vms, &self.cn, &self.tried, limit);
        for (vm, next) in starts {
            let action = if next == Next::Begin { "begin" } else { "sync" };
            let is_begin = next == Next::Begin;
            let to = self.wanted.to.clone().filter(|_| is_begin);
            let options = Options {
                migration_automatic: is_begin,
                override_server_uuid: to,
                ..Options::default()
            };
            match self.services.migrations.act(&vm, action, &options).await {
                Ok(_) => drop(self.tried.insert(vm)),
                // Whether it was taken the next look tells. What is away comes back, if it does within a while.
                Err(error) if is_away(&error) && !self.has_waited(&vm) => {
                    eprintln!("{NAME}: {vm}: {error}; trying again");
                }
                Err(error) if error.status().is_none() => return Err(error),
                Err(error) => {
                    if let Some(known) = self.vms.get_mut(&vm) {
                        known.refusal = Some(error.message().to_owned());
                    }
                    self.tried.insert(vm);
                }
            }
        }
        Ok(false)
    }

    /// Returns true if a VM was asked for in vain for long enough. The first time begins the wait.
    fn has_waited(&mut self, vm: &str) -> bool {
        let since = self.waits.entry(vm.to_owned()).or_insert_with(Instant::now);
        since.elapsed() >= PATIENCE
    }

    async fn finish(&mut self, layout: &Layout) -> anyhow::Result<ExitCode> {
        self.look().await?;
        let plan::Count { moved, stay, .. } = self.count().await?;
        self.vms.retain(|_, known| plan::next(known, &self.cn, true) != Next::Moved);
        if stay > 0 {
            self.print(layout)?;
        }
        say(&format!("{moved} moved, {stay} stay"))?;
        if moved > 0 {
            say(&format!("Their old copies stay until: {NAME} finalize VM"))?;
        }
        self.release().await?;
        Ok(if stay > 0 { ExitCode::from(exit::FAILED) } else { ExitCode::SUCCESS })
    }

    /// Reads the VMs and migrations of the node. Prints what became of each since the last look.
    async fn look(&mut self) -> Result<(), Error> {
        let query = VmQuery {
            server_uuid: Some(self.cn.clone()),
            state: Some("active".to_owned()),
            fields: ["state", "alias"].map(str::to_owned).into(),
            ..VmQuery::default()
        };
        let here = self.services.vmapi.list_vms(&query).await?;
        let cn = Some(self.cn.clone());
        let query = MigrationQuery { source_server_uuid: cn, ..MigrationQuery::default() };
        let migrations = self.services.migrations.list(&query).await?;
        let is_first = self.vms.is_empty();
        let before: BTreeMap<String, String> =
            self.vms.iter().map(|(vm, known)| (vm.clone(), plan::state(known))).collect();
        for known in self.vms.values_mut() {
            (known.is_here, known.migration) = (false, None);
        }
        for vm in here.into_iter().filter(|vm| !self.wanted.excluded.contains(&vm.uuid)) {
            let known = self.vms.entry(vm.uuid.clone()).or_default();
            known.is_here = true;
            known.alias = alias(&vm).unwrap_or_default().to_owned();
        }
        // The newest comes first.
        let is_wanted = |vm: &String| !vm.is_empty() && !self.wanted.excluded.contains(vm);
        let named = migrations.into_iter().rev().filter(|it| is_wanted(&it.vm_uuid));
        for migration in named {
            let known = self.vms.entry(migration.vm_uuid.clone()).or_default();
            known.migration = Some(migration);
        }
        for (vm, known) in self.vms.iter().filter(|_| !is_first) {
            let now = plan::state(known);
            if before.get(vm) != Some(&now) {
                let line = format!("{}: {}\n", plan::called(vm, known), visible(&now));
                // A reader that went away does not end an evacuation.
                let _gone = screen::write(&line);
            }
        }
        Ok(())
    }

    /// Asks what each VM takes, or its obstacles, several at once: a node that does not answer holds up no
    /// other one. Prints each as soon as it is known.
    async fn estimate(&mut self, prints: bool) -> anyhow::Result<()> {
        let (migrations, all) = (&self.services.migrations, self.vms.len());
        let to = self.wanted.to.as_deref();
        let vms: Vec<String> = self.vms.keys().cloned().collect();
        let asked = vms.into_iter().map(async |vm: String| {
            let answer = migrations.plan(&vm, to).await;
            (vm, answer)
        });
        let mut answers = pin!(stream::iter(asked).buffer_unordered(AT_ONCE).enumerate());
        let shown = (!prints).then(|| Progress::begin("estimating"));
        while let Some((at, (vm, answer))) = answers.next().await {
            let Some(known) = self.vms.get_mut(&vm) else { continue };
            match answer {
                Ok(estimate) => known.estimate = Some(estimate),
                Err(error) if error.status().is_some() => {
                    known.refusal = Some(error.message().to_owned());
                }
                Err(error) => return Err(error.into()),
            }
            if prints {
                let was_tried = self.tried.contains(&vm);
                screen::write(&plan::row(&vm, known, &self.cn, was_tried, &self.hosts))?;
            }
            if let Some(shown) = &shown {
                shown.say(&format!("estimating, {at} of {all}"));
            }
        }
        Ok(())
    }

    /// How many migrations the node may have at once.
    async fn limit(&self) -> Result<usize, Error> {
        const NAME: &str = "max_running_migrations_per_cn";
        let read = |settings: &Map<String, Value>| settings.get(NAME).and_then(Value::as_u64);
        let own = self.services.migrations.settings(Some(&self.cn)).await?;
        let limit = match read(&own) {
            Some(limit) => Some(limit),
            None => read(&self.services.migrations.settings(None).await?),
        };
        let limit = limit.map_or(UNSAID, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let wanted = self.wanted.at_once.and_then(|wanted| usize::try_from(wanted).ok());
        Ok(wanted.map_or(limit, |wanted| limit.min(wanted)))
    }

    fn print(&self, layout: &Layout) -> anyhow::Result<()> {
        screen::write(&plan::table(&self.vms, &self.cn, &self.tried, layout, self.style.screen)?)?;
        Ok(())
    }
}

/// The service, or one that it needs, does not answer now, or the outcome is unknown.
fn is_away(error: &Error) -> bool {
    error.status().is_none_or(|status| status >= 500)
}

/// A refusal is no failure if it was only too late.
fn refused(error: Error) -> Result<(), Error> {
    if error.status().is_some_and(|status| status < 500) { Ok(()) } else { Err(error) }
}
