// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Answers for the operator that take requests: one NIC with everything that is known of it, a
//! rehearsal of a pass, and the offer that lists what the brake keeps. Reads only; what is said
//! here comes from the same rules that the writer asks.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use sdc_clients::MacAddr;
use sdc_clients::napi::BelongsToType;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::apply::Fresh;
use crate::inventory::{Identity, LocalVm};
use crate::plan::backfill;
use crate::plan::reap::Ruling;
use crate::plan::wish::Upkeep;
use crate::plan::{describe, state};
use crate::remote;
use crate::status::evidence_json;

impl Agent {
    /// What NAPI, the node and VMAPI say of one NIC, and what follows.
    pub async fn explain(&self, mac: MacAddr) -> Value {
        let shared = &self.shared;
        let mut said = json!({"mac": mac.to_string(), "cn_uuid": shared.policy.cn_uuid});
        // No agent has run in this process: who the node is has to be asked.
        if shared.identity().is_none()
            && let Ok(sysinfo) = self.clients.vminfod.sysinfo().await
        {
            shared.identify(Identity::read(&sysinfo).ok());
        }
        let view = shared.fresh_view(&self.clients.vminfod).await;
        if let Ok(fresh) = &view {
            self.told_by_view(fresh.differing.clone());
        }
        let here = shared.look(|i| i.view.holders(mac).map(vm_json).collect::<Vec<_>>());
        said["node"] = match &view {
            Ok(fresh) => json!({"vms": here, "complete": fresh.view.complete}),
            Err(why) => json!({"vms": here, "unknown": why}),
        };
        let departure = shared.all_departed().into_iter().find(|(left, _)| *left == mac);
        said["departed"] = departure
            .map_or(Value::Null, |(_, d)| json!({"vm": d.vm, "why": d.why, "tries": d.tries}));
        let fresh = match self.apply.read(mac).await {
            Ok(Fresh::Record(fresh)) => fresh,
            Ok(Fresh::Missing) => {
                said["napi"] = Value::Null;
                said["action"] = "keep".into();
                said["reason"] = "NAPI has no record of it".into();
                return said;
            }
            Err(failed) => {
                said["napi"] = json!({"unknown": failed.to_string()});
                said["action"] = "defer".into();
                said["reason"] = "NAPI does not answer".into();
                return said;
            }
        };
        let vm = &fresh.value.belongs_to_uuid;
        said["napi"] = serde_json::to_value(&fresh.value).unwrap_or_default();
        said["etag"] = fresh.etag.clone().into();
        let hold = shared.held(vm);
        said["hold"] = hold.map_or(Value::Null, |hold| hold.reason.into());
        let zone = fresh.value.belongs_to_type == BelongsToType::Zone;
        let verdict =
            if zone && shared.policy.ask_vmapi { Some(self.apply.ask(vm).await) } else { None };
        said["vmapi"] = verdict.as_ref().map(ToString::to_string).into();
        let (action, reason) = if !zone {
            let identity = shared.identity().unwrap_or_default();
            kept_up(state::of_own_nic(&fresh.value, &identity, &shared.policy))
        } else if !here.is_empty() {
            kept_up(shared.look(|i| {
                backfill::upkeep(&fresh.value, &i.view, verdict.as_ref(), true, &shared.policy)
            }))
        } else {
            let basis = self.basis_of(mac, vm);
            let judged = self.apply.judge(&fresh, basis, verdict.as_ref());
            said["evidence"] = judged.evidence.iter().map(evidence_json).collect();
            let action = match judged.ruling {
                Ruling::Delete => "delete",
                Ruling::AskVmapi | Ruling::Defer => "defer",
                Ruling::Keep => "keep",
            };
            let why = judged.obstacle().map(|e| format!("{}: {}", e.guard, e.said));
            (action.to_owned(), why.unwrap_or_else(|| "leaked".to_owned()))
        };
        said["action"] = action.into();
        said["reason"] = reason.into();
        said["brake"] = shared.status.braked().into();
        said["mute"] = shared.mute().into();
        said
    }

    /// Lists what the brake keeps, each record read now, and offers it for approval.
    pub async fn offer(&self) -> Value {
        let kept: BTreeMap<MacAddr, String> = self.shared.all_braked();
        let read: Vec<Option<(MacAddr, String)>> = futures_util::stream::iter(kept)
            .map(|(mac, vm)| async move {
                match self.apply.read(mac).await {
                    Ok(Fresh::Record(fresh)) if fresh.value.belongs_to_uuid == vm => {
                        Some((mac, fresh.etag.filter(|etag| !etag.is_empty())?))
                    }
                    _ => None,
                }
            })
            .buffer_unordered(4)
            .collect()
            .await;
        self.shared.offer(read.into_iter().flatten().collect());
        self.plan_json()
    }

    /// A pass that only talks: list, view, verdicts, and what would be done about each record.
    /// It is one look, so nothing in it is ever more than a candidate.
    ///
    /// # Errors
    /// Says what did not answer.
    pub async fn rehearse(&self) -> Result<Value, String> {
        let (shared, config) = (&self.shared, &self.shared.config);
        let sysinfo = self.clients.vminfod.sysinfo().await;
        let sysinfo = sysinfo.map_err(|err| format!("vminfod: {}", daemon::log::chain(&err)))?;
        shared.identify(Some(Identity::read(&sysinfo)?));
        let list = remote::list(&self.clients.napi, &config.cn_uuid, config.fallback).await;
        let list = list.map_err(|err| daemon::log::chain(&err))?;
        let view = shared.fresh_view(&self.clients.vminfod).await?.view;
        let plan = self.look_once(list, &view).await;
        shared.status.planned(&plan);
        Ok(self.plan_json())
    }
}

fn kept_up(upkeep: Upkeep) -> (String, String) {
    match upkeep {
        Upkeep::Agrees => ("keep".to_owned(), "record and node agree".to_owned()),
        Upkeep::Leave(why) => ("keep".to_owned(), why),
        Upkeep::AskVmapi => ("keep".to_owned(), "cn_uuid is another node's".to_owned()),
        Upkeep::Write(wish) => ("write".to_owned(), describe(&wish)),
    }
}

fn vm_json(vm: &LocalVm) -> Value {
    json!({"uuid": vm.uuid, "state": vm.state, "do_not_inventory": vm.hidden})
}
