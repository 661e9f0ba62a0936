// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Answers for the operator that make requests: one NIC with everything that is known about it, a
//! rehearsal of a pass, and the offer that lists what the brake blocks. They only read.

use std::collections::BTreeMap;

use daemon::agent::{Identity, Unidentified};
use daemon::log::clip;
use futures_util::StreamExt as _;
use sdc_clients::MacAddr;
use sdc_clients::http::Versioned;
use sdc_clients::napi::{BelongsToType, Nic};
use serde_json::{Value, json};

use crate::apply::{self, Found};
use crate::listing::{self, ListError};
use crate::parts::Parts;
use crate::plan::reap::Ruling;
use crate::plan::{Reason, Refusal, Upkeep, Verdict, own_nic, upkeep};
use crate::status::evidence_json;
use crate::view::{LocalVm, ViewError};
use crate::{changes, pass, worker};

/// The most records of one offer: at the usual 5 requests per second they are read in 50 s.
const MOST: usize = 250;

/// Why there is no rehearsal.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unrehearsed {
    #[error(transparent)]
    Identity(#[from] Unidentified),
    #[error(transparent)]
    List(#[from] ListError),
    #[error(transparent)]
    View(#[from] ViewError),
}

/// Returns what NAPI, the node and VMAPI say about one NIC, and what follows.
#[tracing::instrument(skip_all, fields(nic = %mac))]
pub(crate) async fn explain(parts: &Parts, mac: MacAddr) -> Value {
    let mut said = json!({"mac": mac.to_string(), "cn_uuid": parts.config.policy.cn_uuid});
    if parts.gate.identity().is_none() {
        // No agent runs in this process. Without an answer the page says so in "mute".
        let _unidentified = identify(parts).await;
    }
    let view = parts.node.read_fresh(&parts.clients.vminfod).await;
    let here = |vm: &LocalVm| json!({"uuid": vm.uuid, "state": vm.state.to_string(), "do_not_inventory": vm.hidden});
    let vms: Vec<Value> = parts.node.with(|i| i.view.holders(mac).map(here).collect());
    let is_here = !vms.is_empty();
    said["node"] = match view {
        Ok(fresh) => {
            changes::missed(parts, fresh.differing);
            json!({"vms": vms, "complete": fresh.view.is_complete()})
        }
        Err(err) => json!({"vms": vms, "unknown": daemon::log::chain(&err)}),
    };
    let departure = parts.departures.all().into_iter().find(|(left, _)| *left == mac);
    said["departed"] = departure.map_or(
        Value::Null,
        |(_, d)| json!({"vm": d.vm, "why": clip(&d.why.to_string()), "tries": d.tries}),
    );
    let last = parts.history.last_of(mac).await;
    said["history"] = last.as_ref().and_then(|entry| serde_json::to_value(entry).ok()).into();
    let (action, reason) = match apply::read(parts, mac).await {
        Ok(Found::Record(fresh)) => judged(parts, &fresh, is_here, &mut said).await,
        Ok(Found::Missing) => {
            let deleted = last.as_ref().filter(|entry| entry.is_delete());
            let reason = deleted.map_or(Reason::NoRecord, |entry| Reason::DeletedHere {
                at: entry.at,
                rule: entry.rule.clone(),
                why: entry.why.clone(),
            });
            ("keep", reason)
        }
        Err(why) => {
            said["napi"] = json!({"unknown": why.to_string()});
            ("defer", why)
        }
    };
    said["action"] = action.into();
    said["reason"] = clip(&reason.to_string()).into();
    said["brake"] = parts.brake.sentence().into();
    said["mute"] = parts.gate.writable().err().map(|refusal| refusal.to_string()).into();
    said
}

/// Reads who the node is, in a process in which no task does.
async fn identify(parts: &Parts) -> Result<(), Unidentified> {
    parts.gate.identify(Identity::read(&parts.clients.vminfod).await?);
    Ok(())
}

/// Adds what is said about a record, and returns what follows.
async fn judged(
    parts: &Parts,
    fresh: &Versioned<Nic>,
    is_here: bool,
    said: &mut Value,
) -> (&'static str, Reason) {
    let (nic, policy) = (&fresh.value, &parts.config.policy);
    let vm = &nic.belongs_to_uuid;
    said["napi"] = serde_json::to_value(nic).unwrap_or_default();
    said["etag"] = fresh.etag.clone().into();
    let hold = match parts.gate.not_held(vm).await {
        Err(Refusal::Held(hold)) => Some(hold),
        _ => None,
    };
    said["hold"] = hold.as_ref().map(|hold| hold.reason.clone()).into();
    let is_zone = nic.belongs_to_type == BelongsToType::Zone;
    let mut verdict: Option<Verdict> = None;
    if is_zone && policy.ask_vmapi {
        verdict = Some(apply::ask_vmapi(parts, vm).await);
    }
    said["vmapi"] = verdict.as_ref().map(ToString::to_string).into();
    let upkeep = if !is_zone {
        own_nic::upkeep(nic, &parts.gate.identity().unwrap_or_default(), policy)
    } else if is_here {
        parts.node.with(|i| upkeep::upkeep(nic, &i.view, verdict.as_ref(), true, policy))
    } else {
        let basis = worker::basis(parts, nic.mac, vm);
        let judged = apply::judge(parts, fresh, basis, verdict.as_ref(), hold.as_ref());
        said["evidence"] = judged.evidence.iter().map(evidence_json).collect();
        let action = match judged.ruling {
            Ruling::Delete => "delete",
            Ruling::AskVmapi | Ruling::Defer => "defer",
            Ruling::Keep => "keep",
        };
        return (action, judged.reason());
    };
    match upkeep {
        Upkeep::Agrees => ("keep", Reason::Agrees),
        Upkeep::Leave(why) => ("keep", why),
        Upkeep::AskVmapi => ("keep", Reason::ForeignCnAsk),
        Upkeep::Write(wish) => ("write", Reason::Wish(wish)),
    }
}

/// Reads the records that the brake blocks, within the budget of requests, and offers them for approval. Of
/// more than [`MOST`] the first: what is approved and gone makes room for the next.
pub(crate) async fn offer(parts: &Parts) {
    let blocked: Vec<_> = blocked(parts).into_iter().take(MOST).collect();
    let of = blocked.len();
    let at_once = usize::try_from(parts.config.services.in_flight).unwrap_or(1);
    let read = |(mac, vm): (MacAddr, String)| async move {
        match apply::read(parts, mac).await {
            Ok(Found::Record(fresh)) if fresh.value.belongs_to_uuid == vm => {
                Some((mac, fresh.etag.filter(|etag| !etag.is_empty())?))
            }
            _ => None,
        }
    };
    let mut read = futures_util::stream::iter(blocked).map(read).buffer_unordered(at_once);
    let mut pairs = BTreeMap::new();
    for done in 0.. {
        parts.status.reading(Some((done, of)));
        match read.next().await {
            Some(pair) => pairs.extend(pair),
            None => break,
        }
    }
    parts.status.reading(None);
    parts.brake.offer(pairs);
}

/// Returns everything that the brake blocks, of passes and of departures, with the VMs.
pub(crate) fn blocked(parts: &Parts) -> BTreeMap<MacAddr, String> {
    let mut all = parts.brake.blocked();
    all.extend(parts.departures.braked());
    all
}

/// Makes a plan from one look at the list, the view and the verdicts. In one look nothing is ever
/// more than a candidate.
/// Fails if vminfod or NAPI does not answer.
pub(crate) async fn rehearse(parts: &Parts) -> Result<(), Unrehearsed> {
    let config = &parts.config;
    identify(parts).await?;
    let (napi, fallback) = (&parts.clients.napi, config.services.fallback);
    let listing = listing::list(napi, &config.policy.cn_uuid, fallback).await?;
    let view = parts.node.read_fresh(&parts.clients.vminfod).await?.view;
    parts.status.planned(pass::look_once(parts, listing, &view).await);
    Ok(())
}
