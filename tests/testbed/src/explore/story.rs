// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What an operator does in a run, and what has to be true afterwards (P14).

use std::time::Duration;

use anyhow::Result;
use migration_core::intent::End;
use migration_service::ends::Ends;
use migration_service::strangers::Strangers;
use sdc_clients::migrations::Migration;
use tokio::time::sleep;

use super::names::uuid;
use super::points::Party;
use super::world::World;
use crate::moving::ending::{Ending, Side, open_tickets};
use crate::moving::operator::{DEAD_AFTER, Op, Operator, Story, Waits, Weather};
use crate::moving::subject::VM;

/// How long the operator waits, in simulated time.
const WAITS: Waits = Waits {
    patience: Duration::from_secs(4 * 3600),
    look: Duration::from_secs(2),
    again: Duration::from_secs(400),
};
/// With a deliberate bug what does not end by then does not end: each story takes less.
const NO_PATIENCE: Duration = Duration::from_secs(600);
/// Agents have put everything in order after so long.
const SETTLES: Duration = Duration::from_secs(100);
/// A copy that was replaced is stopped so long after its node is back, whatever is stopped meanwhile.
const WATCHED: Duration = Duration::from_secs(600);
/// Within this time an alarm says that both copies run.
const PAGED: Duration = Duration::from_secs(130);
/// So often an operation is gone on with after somebody's hand was in it.
const ATTEMPTS: usize = 3;
const AGENTS_SETTLE: Duration = Duration::from_secs(900);

impl Weather for &World {
    fn is_calm(&self) -> bool {
        self.net.points.is_calm()
    }

    fn was_lost(&self) -> bool {
        self.vault.was_lost()
    }

    fn is_by_hand(&self) -> bool {
        self.judge.is_by_hand()
    }
}

impl World {
    /// Returns the record that is not over, when nothing of it runs any more, looking this often.
    pub async fn rested(&self, look: Duration) -> Result<Option<Migration>> {
        self.operator(Waits { look, ..WAITS })?.rested().await
    }

    fn operator(&self, waits: Waits) -> Result<Operator<'_>> {
        let (source, target) = (uuid(End::Source), uuid(End::Target));
        Ok(Operator { client: self.migrations()?, source, target, judge: &self.judge, waits })
    }

    /// Tells the story, and checks its end.
    pub async fn tell(&self, story: Story) -> Result<()> {
        let patience = if self.has_bug() { NO_PATIENCE } else { WAITS.patience };
        let operator = self.operator(Waits { patience, ..WAITS })?;
        for op in story.ops() {
            self.net.points.mark();
            match op {
                Op::SwitchDead => {
                    self.net.points.cut_power(End::Source);
                    self.goes_down(End::Source).await?;
                    self.judge.dark(End::Source, true);
                    self.judge.give_up(End::Source, &self.cn(End::Target).node);
                }
                Op::SwitchCut => {
                    self.net.points.cut(End::Source);
                    self.judge.dark(End::Source, true);
                    self.judge.give_up(End::Source, &self.cn(End::Target).node);
                }
                Op::SwitchUnwell => self.net.points.stop(Party::Vminfod(End::Source)),
                Op::SwitchHasty => {
                    self.net.points.stop(Party::Agent(End::Source));
                    sleep(DEAD_AFTER).await;
                }
                Op::Rescue => {
                    let source = self.cn(End::Source);
                    self.judge.give_up(End::Source, &self.cn(End::Target).node);
                    source.verbs().delete(VM).await?;
                    self.judge.note("-- somebody has deleted the VM on its node".to_owned());
                }
                Op::Discard => self.judge.give_up(End::Target, &self.cn(End::Source).node),
                _ => {}
            }
            self.judge.note(format!(">> at {}", self.net.points.count()));
            // Nothing follows from silence: an agent that the story keeps away says later what runs.
            let is_away = matches!(op, Op::SwitchUnwell | Op::SwitchHasty);
            for _ in 0..ATTEMPTS {
                let is_done = operator.op(*op, self).await?;
                if !is_away && let Some(end) = self.twins(&operator).await? {
                    return self.ends(end).await;
                }
                if is_done {
                    break;
                }
            }
            if *op == Op::SwitchUnwell {
                self.net.points.go_on(Party::Vminfod(End::Source));
                sleep(SETTLES).await;
            }
            if *op == Op::SwitchHasty {
                self.net.points.go_on(Party::Agent(End::Source));
                sleep(SETTLES).await;
            }
            if is_away && let Some(end) = self.twins(&operator).await? {
                return self.ends(end).await;
            }
            if *op == Op::SwitchCut {
                self.net.points.mend(End::Source);
                self.judge.note("-- the network has the source again".to_owned());
                sleep(WATCHED).await;
                self.decided(&operator).await?;
                self.judge.dark(End::Source, false);
                self.judge.check("the source was to be stopped");
            }
            if *op == Op::SwitchDead {
                // It has autoboot, and the zone was not stopped: the boot rule keeps it down.
                self.comes_up(End::Source).await?;
                self.judge.note(format!(
                    "-- the source is back: {:?}",
                    self.judge.copy(&self.cn(End::Source).node)
                ));
            }
        }
        self.net.points.mark();
        self.ends(story.end()).await
    }

    /// Nothing is done any more: the VM is on this node.
    async fn ends(&self, end: End) -> Result<()> {
        sleep(if self.with_agents() { AGENTS_SETTLE } else { SETTLES }).await;
        self.judge.rest();
        self.judge.check("delete: the end");
        self.check(end).await
    }

    /// Where somebody's hand has made both copies run, an alarm says so that pages, and its verb ends it. Returns where
    /// the VM is then, if the migration is over.
    async fn twins(&self, operator: &Operator<'_>) -> Result<Option<End>> {
        let runs = |end: End| self.judge.copy(&self.cn(end).node).is_some_and(|it| it.running);
        let both = || self.judge.is_by_hand() && runs(End::Source) && runs(End::Target);
        for _ in 0..ATTEMPTS {
            if !both() {
                return Ok(None);
            }
            sleep(PAGED).await;
            let record = operator.rested().await?;
            let needs = record.as_ref().and_then(|it| it.other.get("needs")?.as_array().cloned());
            let needs = needs.unwrap_or_default();
            self.judge.note(format!(">> both copies run: {needs:?}"));
            if !both() {
                return Ok(None); // it was stopped meanwhile
            }
            let is_paged = |need: &serde_json::Value| {
                let need = need["state"].as_str().and_then(daemon::needs::find);
                need.is_some_and(|need| need.alert == "MigrationBothRun")
            };
            if !needs.iter().any(is_paged) {
                self.judge.fault("M257", "two copies run, and no alarm says so");
            }
            let verbs = needs.iter().filter_map(|it| Op::named(it["command"].as_str()?));
            let Some(op) = verbs.into_iter().next() else {
                anyhow::bail!("M257: two copies run, and no verb ends it: {needs:?}");
            };
            self.judge.note(format!(">> told: {op:?}"));
            let says = needs.iter().filter(|it| is_paged(it)).filter_map(|it| it["says"].as_str());
            says.for_each(|says| self.judge.tells(says));
            operator.command(op).await?;
            let record = operator.rested().await?;
            let is_over = record.as_ref().is_none_or(|it| it.state == "aborted");
            if is_over {
                return Ok(Some(if op == Op::Finalize { End::Target } else { End::Source }));
            }
        }
        anyhow::bail!("M257: two copies run, and the verb that is told does not end it")
    }

    /// A store that has lost that the source was declared dead stops nothing that runs: both copies do, an alarm says
    /// so, and the operator decides. The one exception of P13.
    async fn decided(&self, operator: &Operator<'_>) -> Result<()> {
        let runs = |end: End| self.judge.copy(&self.cn(end).node).is_some_and(|it| it.running);
        if !self.vault.was_lost() || !runs(End::Source) || !runs(End::Target) {
            return Ok(());
        }
        let claims = Strangers::open(&self.vault.store()).await?.all().await?;
        if !claims.iter().any(|it| it.instead.is_some()) {
            self.judge.fault("P13", "two copies run, and no alarm says so");
        }
        operator.decides(operator.source).await?;
        sleep(WATCHED).await;
        Ok(())
    }

    /// Checks that the VM is on this node, whole, and that nothing of the migration is left.
    async fn check(&self, end: End) -> anyhow::Result<()> {
        let rows = Ends::open(&self.vault.store()).await?.all().await?;
        let is_watched = rows.iter().any(|kept| kept.row.end == end.other());
        let ending = Ending { is_watched, ..self.ending(end) };
        for (promise, what) in ending.wrongs().await {
            self.judge.fault(promise, &what);
        }
        open_tickets(&self.cnapi).into_iter().for_each(|ticket| self.judge.note(ticket));
        Ok(())
    }

    /// Checks what VMAPI and NAPI have, where the VM is on this node.
    pub async fn check_records(&self, end: End) {
        for (promise, what) in self.ending(end).records().await {
            self.judge.fault(promise, &what);
        }
    }

    fn ending(&self, end: End) -> Ending<'_> {
        let side = |end: End| {
            let cn = self.cn(end);
            Side { end, node: cn.node.clone(), holds: cn.holds() }
        };
        Ending {
            judge: &self.judge,
            here: side(end),
            there: side(end.other()),
            vmapi: &self.vmapi,
            napi: &self.napi,
            addresses: self.napi_client(),
            nics: &self.nics,
            with_agents: self.with_agents(),
            is_watched: false,
        }
    }
}
