// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Evacuates a node: the service does, this asks for it and says how far it is.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::process::ExitCode;

use daemon::cli::hosts::Hosts;
use daemon::cli::screen::visible;
use daemon::cli::{Layout, Progress, screen};
use daemon::exit;
use futures_util::{StreamExt as _, stream};
use sdc_clients::Error;
use sdc_clients::migrations::MigrationQuery;
use sdc_clients::vmapi::VmQuery;
use serde_json::{Value, json};

use super::plan::{self, Limits};
use crate::args::{Consent, NAME};
use crate::ask::{Stake, confirm};
use crate::next::is_word;
use crate::order::say;
use crate::services::{Services, alias};
use crate::show::Style;
use migration_core::evacuation::{Count, EvacuatedVm, Next, count, next};

/// Estimates at once: each asks the agents of two nodes.
const AT_ONCE: usize = 8;
/// Migrations at once where the service does not report a limit.
const UNSAID: usize = 1;
/// Ctrl-C: 128 and SIGINT.
const LEFT: u8 = 130;

pub(crate) struct Evacuation<'a> {
    services: &'a Services,
    cn: String,
    /// How it was typed, and stands in sentences and commands.
    typed: String,
    style: Style,
    vms: BTreeMap<String, EvacuatedVm>,
    /// The VMs that the service has begun or resumed.
    tried: BTreeSet<String>,
    /// The node was reserved before.
    was_reserved: bool,
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
    /// Prepares one; of the node it is only asked which one is meant.
    pub(crate) async fn of(
        services: &'a Services,
        typed: &str,
        style: Style,
        wanted: Wanted,
    ) -> anyhow::Result<Evacuation<'a>> {
        let cn = services.node(typed).await?;
        let typed = if is_word(typed) { typed } else { &cn }.to_owned();
        let (vms, tried, hosts) = (BTreeMap::new(), BTreeSet::new(), Hosts::default());
        Ok(Evacuation {
            services,
            cn,
            typed,
            style,
            vms,
            tried,
            was_reserved: false,
            hosts,
            wanted,
        })
    }

    /// Prints what would be done: rows as they come, then their sum; a table that is asked for is printed whole. Exit 1
    /// if a VM cannot move.
    pub(crate) async fn dry_run(&mut self, layout: &Layout) -> anyhow::Result<ExitCode> {
        self.read().await?;
        let is_for_people = !layout.json && !layout.asks_for_table();
        self.hosts = self.services.hosts().await;
        if is_for_people && !layout.no_header {
            screen::write(&plan::title())?;
        }
        self.estimate(is_for_people).await?;
        match is_for_people {
            true => {
                let limits = self.limits().await?;
                screen::write(&plan::sum(&self.vms, &self.cn, &self.tried, limits))?;
            }
            false => self.print(layout)?,
        }
        let count = count(&self.vms, &self.cn, &self.tried);
        Ok(if count.stay > 0 { ExitCode::from(exit::FAILED) } else { ExitCode::SUCCESS })
    }

    /// Moves all VMs, or goes on with that.
    pub(crate) async fn run(
        &mut self,
        layout: &Layout,
        consent: Consent,
    ) -> anyhow::Result<ExitCode> {
        if !self.is_begun(consent).await? {
            return Ok(ExitCode::from(exit::FAILED));
        }
        let mut interrupted = pin!(tokio::signal::ctrl_c());
        loop {
            match self.follow().await {
                Ok(Outcome::GoesOn) => {}
                Ok(Outcome::Paused) => return ended_elsewhere(),
                Ok(Outcome::Over) => return self.finish(layout),
                Err(error) if error.is_retryable() => {
                    eprintln!("{NAME}: {error}; trying again");
                }
                Err(error) => return Err(error.into()),
            }
            // Both arms are cancel-safe.
            tokio::select! {
                () = tokio::time::sleep(self.services.poll) => {}
                _ = &mut interrupted => {
                    eprintln!("The evacuation goes on. {}", self.commands());
                    return Ok(ExitCode::from(LEFT));
                }
            }
        }
    }

    /// Asks the service to move all VMs, or to go on with that, and does not watch it.
    pub(crate) async fn ask_for(&mut self, consent: Consent) -> anyhow::Result<ExitCode> {
        if !self.is_begun(consent).await? {
            return Ok(ExitCode::from(exit::FAILED));
        }
        say(&format!("The service evacuates the node. {}", self.commands()))
    }

    /// Asks the operator, then the service; returns false if the operator declines.
    async fn is_begun(&mut self, consent: Consent) -> anyhow::Result<bool> {
        self.read().await?;
        let here = self.vms.values().filter(|known| known.is_here).count();
        let text = format!(
            "This will move {here} instances off node {}, which gets no new ones meanwhile.",
            self.typed
        );
        let is_wanted = confirm(&text, Stake::Undoable, consent)?;
        if is_wanted {
            self.begin().await?;
        }
        Ok(is_wanted)
    }

    /// Returns the commands for an evacuation that is under way.
    fn commands(&self) -> String {
        format!(
            "Watch it with: {NAME} evacuate {0}\nPause it with: {NAME} evacuate {0} --pause. End it with: {NAME} \
             evacuate {0} --release",
            self.typed
        )
    }

    /// Pauses what runs, and lets nothing begin.
    pub(crate) async fn pause(&mut self) -> anyhow::Result<ExitCode> {
        if self.services.migrations.evacuation(&self.cn).await?.is_none() {
            anyhow::bail!("no evacuation of node {} is under way", self.typed);
        }
        self.update(json!({ "paused": true })).await?;
        let shown = Progress::begin("pausing what syncs");
        // A stream stops when it can, which may take several readings.
        loop {
            self.read().await?;
            let runs = self.vms.values().filter(|known| {
                next(known, &self.cn, true) == Next::Runs
                    && known.migration.as_ref().is_some_and(|it| it.automatic)
            });
            let runs = runs.count();
            if runs == 0 {
                break;
            }
            shown.say(&format!("{runs} still run; begin and switch end first"));
            tokio::time::sleep(self.services.poll).await;
        }
        drop(shown);
        say(&format!("The evacuation is paused. Go on with: {NAME} evacuate {}", self.typed))
    }

    /// Gives the node back to placement.
    pub(crate) async fn release(&self) -> anyhow::Result<ExitCode> {
        let Some(row) = self.services.migrations.evacuation(&self.cn).await? else {
            return say(&format!("No evacuation of node {} is under way", self.typed));
        };
        self.services.migrations.end_evacuation(&self.cn).await?;
        say(over(row.was_reserved))
    }

    /// Lets the service begin it, or go on with it.
    async fn begin(&self) -> Result<(), Error> {
        let Wanted { to, excluded, at_once } = &self.wanted;
        let mut values = json!({ "paused": false });
        if let Some(to) = to {
            values["to"] = json!(to);
        }
        if !excluded.is_empty() {
            values["excluded"] = json!(excluded);
        }
        if let Some(at_once) = at_once {
            values["at_once"] = json!(at_once);
        }
        self.update(values).await
    }

    async fn update(&self, values: Value) -> Result<(), Error> {
        let Value::Object(values) = values else { return Ok(()) };
        self.services.migrations.put_evacuation(&self.cn, &values).await.map(drop)
    }

    /// Looks how far it is.
    async fn follow(&mut self) -> Result<Outcome, Error> {
        let row = self.services.migrations.evacuation(&self.cn).await?;
        if let Some(row) = &row {
            self.was_reserved = row.was_reserved;
            self.wanted.excluded.extend(row.excluded.iter().cloned());
        }
        self.read().await?;
        let Some(row) = row else { return Ok(Outcome::Over) };
        for (vm, why) in row.tried {
            if let Some(known) = self.vms.get_mut(&vm).filter(|_| !why.is_empty()) {
                known.refusal = Some(why);
            }
            self.tried.insert(vm);
        }
        Ok(if row.paused { Outcome::Paused } else { Outcome::GoesOn })
    }

    fn finish(&mut self, layout: &Layout) -> anyhow::Result<ExitCode> {
        let Count { moved, stay, left } = count(&self.vms, &self.cn, &self.tried);
        if left > 0 {
            return ended_elsewhere();
        }
        self.vms.retain(|_, known| next(known, &self.cn, true) != Next::Moved);
        if stay > 0 {
            self.print(layout)?;
        }
        say(&format!("{moved} moved, {stay} stay"))?;
        if moved > 0 {
            say(&format!("Their old copies stay until: {NAME} finalize VM"))?;
            say(&format!("All of them: {NAME} finalize --cn {}", self.typed))?;
        }
        say(over(self.was_reserved))?;
        Ok(if stay > 0 { ExitCode::from(exit::FAILED) } else { ExitCode::SUCCESS })
    }

    /// Reads the VMs and migrations of the node. Prints what became of each since the last time.
    async fn read(&mut self) -> Result<(), Error> {
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
                let failed = known.migration.as_ref().filter(|it| it.state == "failed");
                let why =
                    failed.and_then(|it| Some(format!(": {}", visible(it.error.as_deref()?))));
                let why = why.unwrap_or_default();
                let line = format!("{}: {}{why}\n", plan::called(vm, known), visible(&now));
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

    /// What the node may do at once.
    async fn limits(&self) -> Result<Limits, Error> {
        let own = self.services.migrations.settings(Some(&self.cn)).await?;
        let all = self.services.migrations.settings(None).await?;
        let read = |name: &str| [&own, &all].iter().find_map(|it| it.get(name)?.as_u64());
        let most = read("max_running_migrations_per_cn")
            .map_or(UNSAID, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let wanted = self.wanted.at_once.and_then(|wanted| usize::try_from(wanted).ok());
        let at_once = wanted.map_or(most, |wanted| most.min(wanted));
        Ok(Limits { at_once, mbps: read("zfs_send_mbps_limit") })
    }

    fn print(&self, layout: &Layout) -> anyhow::Result<()> {
        screen::write(&plan::table(&self.vms, &self.cn, &self.tried, layout, self.style.screen)?)?;
        Ok(())
    }
}

/// What reading an evacuation found.
enum Outcome {
    GoesOn,
    Paused,
    Over,
}

fn ended_elsewhere() -> anyhow::Result<ExitCode> {
    say("The evacuation was paused or ended by another command")?;
    Ok(ExitCode::from(exit::FAILED))
}

fn over(was_reserved: bool) -> &'static str {
    match was_reserved {
        true => "The evacuation is over. The node was reserved before, and stays so",
        false => "The evacuation is over. The node may get new instances again",
    }
}
