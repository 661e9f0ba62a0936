// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `GET /migrations`, and `GET` and `DELETE /migrations/UUID`.

use std::collections::BTreeMap;
use std::time::Duration;

use daemon::text::counted;
use sdc_clients::migrations::HistoryQuery;
use serde_json::{Value, json};
use tokio::time::timeout;
use uuid::Uuid;

use super::answer::{Answer, done, ok, uuid};
use super::shared::Front;
use crate::action_params::ActionParams;
use crate::history;
use crate::params::Params;
use crate::records::{Rest, Stored};
use crate::refused::Refused;
use crate::runner::let_go;
use crate::verify::verify as compare;
use migration_core::limits::{Turn, turns};
use migration_core::need::{needs, waits_for, why};
use migration_core::permit::{Caller, Subject, permit_reading};
use migration_core::record::{Filter, Record, State as RecordState, is_over, node_of};
use migration_core::time::Time;

/// The longest that people wait for what a node's agent says of the VM.
const PATIENCE: Duration = Duration::from_secs(3);
/// So many records that are over are listed at once.
const MOST_LISTED: usize = 1000;

impl Front {
    pub async fn compare(&self, vm: &str, params: &Params) -> Answer {
        let kept = self.found(vm, params).await?;
        ok(&compare(&self.service, &kept.record).await?)
    }

    pub async fn signs(&self, vm: &str, params: &Params) -> Answer {
        if ActionParams::read(params)?.caller != Caller::Operator {
            return Err(Refused::precondition("Invalid vm instance"));
        }
        let kept = self.service.records.of_vm(uuid(vm)?).await?;
        let kept = kept.ok_or_else(|| Refused::not_found("migration not found"))?;
        ok(&self.service.signs_of(&kept.record).await?)
    }

    /// Refuses what the deployed service's jobs write: this service does the steps itself.
    pub fn written_by_jobs() -> Answer {
        let why = "migration-service executes the steps itself: only it writes its records";
        Err(Refused::coded(403, "Forbidden", why))
    }

    pub async fn list(&self, params: &Params) -> Answer {
        if params.text("format") == Some("history") {
            return self.history(params).await;
        }
        let text = |name: &str| params.as_sent(name);
        let filter = Filter {
            owner_uuid: text("owner_uuid"),
            vm_uuid: text("vm_uuid"),
            source_server_uuid: text("source_server_uuid"),
            target_server_uuid: text("target_server_uuid"),
            state: text("state"),
            id: text("id"),
            created_timestamp: text("created_timestamp"),
            data_version: text("data_version"),
        };
        let limit = limit(params)?;
        let mut found = self.service.records.list(&filter, limit).await?;
        if params.as_sent("limit").is_some() {
            found.truncate(limit);
        }
        let waits = self.waits(found.iter().map(|kept| &kept.record)).await?;
        let shown = found.iter().map(|kept| self.shown(&kept.record, &waits, params));
        let mut shown: Vec<Value> = shown.collect();
        self.name_nodes(&mut shown, params).await;
        ok(&Value::Array(shown))
    }

    /// What has ended, the newest first.
    async fn history(&self, params: &Params) -> Answer {
        let since = match params.as_sent("since") {
            Some(text) => {
                let since = Time::parse(&text);
                Some(since.ok_or_else(|| Refused::parameter("since", "Invalid time"))?.to_string())
            }
            None => None,
        };
        let wanted = HistoryQuery {
            vm_uuid: params.as_sent("vm_uuid"),
            cn_uuid: params.as_sent("cn_uuid"),
            owner_uuid: params.as_sent("owner_uuid"),
            since,
            limit: None,
        };
        let found = self.service.records.history.list(&wanted, limit(params)?).await?;
        ok(&json!(found))
    }

    /// Returns what each migration waits for whose turn it is not yet, if any of these waits.
    pub async fn waits(
        &self,
        mut shown: impl Iterator<Item = &Record>,
    ) -> Result<BTreeMap<Uuid, String>, Refused> {
        if shown.all(|record| record.state != RecordState::Queued) {
            return Ok(BTreeMap::new());
        }
        let all = self.service.records.open_ones().await?;
        let settings = self.service.settings.read().await?;
        let reason = |(id, turn)| match turn {
            Turn::Now => None,
            Turn::Waits { cn, limit, place } => Some((
                id,
                format!(
                    "{cn} has {}, as many as it may have; place {place}",
                    counted(limit, "migration", "migrations")
                ),
            )),
        };
        let turns = turns(all.iter().map(|kept| &kept.record), &settings);
        Ok(turns.into_iter().filter_map(reason).collect())
    }

    pub async fn one(&self, vm: &str, params: &Params) -> Answer {
        let kept = match self.found(vm, params).await {
            Err(refused) if refused.status() == 404 => {
                return Err(self.returned(vm, params).await?.unwrap_or(refused));
            }
            found => found?,
        };
        let waits = self.waits(std::iter::once(&kept.record)).await?;
        let mut shown = [self.shown(&kept.record, &waits, params)];
        if params.text("format") == Some("raw") && params.as_sent("owner_uuid").is_none() {
            if let Some(place) = self.place(&kept.record).await {
                shown[0]["where"] = json!(place);
            }
            if let Some(silence) = self.service.silence(&kept.record).await? {
                shown[0]["silence"] = silence;
            }
        }
        self.name_nodes(&mut shown, params).await;
        ok(&shown[0])
    }

    /// Returns what an operator is told of a VM whose migration is over, and of which a copy that was replaced is there.
    async fn returned(&self, vm: &str, params: &Params) -> Result<Option<Refused>, Refused> {
        if ActionParams::read(params)?.caller != Caller::Operator {
            return Ok(None);
        }
        let ends = self.service.records.ends.of_vm(uuid(vm)?).await?;
        let back = ends.iter().find(|kept| kept.row.returned.is_some());
        Ok(back.map(|kept| Refused::replaced(kept.row.cn_uuid, kept.row.vm_uuid)))
    }

    /// Returns where the VM is and whether it runs, as its node's agent says now. None of a migration that is over.
    async fn place(&self, record: &Record) -> Option<String> {
        let intent = &record.intent;
        let end = intent.of_vm();
        let cn = node_of(record, end).filter(|_| !is_over(record))?;
        if intent.hidden_since.is_some() {
            return Some("neither copy is shown: it does not run".to_owned());
        }
        if intent.is_dead(end) && intent.returned.is_none() {
            return Some(format!("it was on {cn}, which was declared dead: it does not run"));
        }
        if let Some(since) = intent.silent(end) {
            let what = "which has not answered since";
            return Some(format!("it is on {cn}, {what} {since}: whether it runs is not known"));
        }
        let seen = timeout(PATIENCE, self.service.agents.object(cn, record.vm_uuid)).await;
        let object = seen.ok().and_then(Result::ok);
        let state = object.as_ref().and_then(|object| object.get("state")?.as_str());
        Some(match state {
            Some("running") => format!("it is on {cn} and runs"),
            Some(state) => format!("it is on {cn} and does not run ({state})"),
            None => format!("it is on {cn}; whether it runs is not known"),
        })
    }

    /// Adds the host names of both nodes, where all fields are asked for.
    async fn name_nodes(&self, shown: &mut [Value], params: &Params) {
        if shown.is_empty() || params.text("format") != Some("raw") {
            return;
        }
        let hosts = self.names.read(&self.service.peers.cnapi).await;
        for one in shown {
            for end in ["source", "target"] {
                let cn = one[format!("{end}_server_uuid")].as_str().map(str::to_owned);
                if let Some(name) = cn.as_deref().and_then(|cn| hosts.known(cn)) {
                    one[format!("{end}_server_hostname")] = json!(name);
                }
            }
            for path in ["/waits_for", "/where", "/silence/signs"] {
                if let Some(text) = one.pointer_mut(path)
                    && let Some(named) = text.as_str().map(|text| hosts.in_text(text))
                {
                    *text = json!(named);
                }
            }
        }
    }

    pub async fn remove(&self, vm: &str, params: &Params) -> Answer {
        let kept = self.service.records.of_vm(uuid(vm)?).await?;
        let mut kept = kept.ok_or_else(|| Refused::not_found("migration not found"))?;
        let now = self.service.clock.now();
        kept.record.intent.asker = Some(params.through.asker(None, now));
        kept.ended = Some(history::of(&mut kept.record, ("remove", history::SUCCESSFUL), now));
        self.service.records.remove(&kept, None, Rest::Stays).await?;
        let_go(&self.service, &kept.record).await;
        let (vm, id) = (kept.record.vm_uuid, kept.record.id);
        tracing::warn!(%vm, %id, "an operator removed a migration's record");
        done()
    }

    fn shown(&self, record: &Record, waits: &BTreeMap<Uuid, String>, params: &Params) -> Value {
        let now = self.service.clock.now();
        let mut shown = match params.text("format") {
            Some("raw") => record.raw(now),
            _ => record.public(now),
        };
        if params.as_sent("owner_uuid").is_some() {
            return shown; // what follows is an operator's
        }
        let turn = waits.get(&record.id).map(String::as_str);
        if let Some(reason) = waits_for(record, turn, now) {
            shown["waits_for"] = json!(reason);
        }
        if let Some(why) = why(record, turn) {
            shown["why"] = json!(why);
        }
        let needs = needs(record, now).into_iter().filter_map(|why| {
            let need = daemon::needs::find(why.name()?)?;
            let command = need.command_for(&[("VM", &record.vm_uuid.to_string())]);
            Some(json!({"state": need.name, "says": need.says, "command": command}))
        });
        let needs: Vec<Value> = needs.collect();
        if !needs.is_empty() {
            shown["needs"] = json!(needs);
        }
        if let Some(bytes) = record.intent.held_bytes {
            shown["held_bytes"] = json!(bytes);
        }
        shown
    }

    /// Returns the record of a VM that VMAPI has and that the caller may see.
    pub async fn found(&self, vm: &str, params: &Params) -> Result<Stored, Refused> {
        let vm = uuid(vm)?;
        let invalid = || Refused::precondition("Invalid vm instance");
        let caller = ActionParams::read(params)?.caller;
        let (known, kept) = (self.service.vm(vm).await, self.service.records.of_vm(vm).await?);
        match (known, &kept) {
            (Err(refused), _) if refused.status() == 404 => return Err(invalid()),
            // VMAPI does not answer: whose VM it is the record knows.
            (Err(refused), Some(kept)) if refused.status() >= 500 => {
                let owner = kept.record.owner_uuid.unwrap_or_default();
                let subject = Subject { owner, allowed: None };
                permit_reading(caller, subject).map_err(|_| invalid())?;
            }
            (known, _) => {
                let known = known?;
                permit_reading(caller, known.subject()).map_err(|_| invalid())?;
                known.server.ok_or_else(invalid)?;
            }
        }
        kept.ok_or_else(|| Refused::not_found("migration not found"))
    }
}

/// Returns how many are wanted at most.
fn limit(params: &Params) -> Result<usize, Refused> {
    let Some(text) = params.as_sent("limit") else { return Ok(MOST_LISTED) };
    let limit = text.parse().ok().filter(|limit| (1..=MOST_LISTED).contains(limit));
    limit.ok_or_else(|| Refused::parameter("limit", "Invalid limit"))
}
