// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Candidates that no list by `cn_uuid` shows: NICs of VMs that VMAPI lists as destroyed or failed
//! on this node, and MACs that the last run of this agent left in the state file. One that never had a
//! `cn_uuid` is adopted first and then judged as all others; its age starts again with that write.
//! A failure here voids nothing.

use std::collections::BTreeSet;

use futures_util::{StreamExt as _, TryStreamExt as _};
use sdc_clients::napi::{Nic, NicList, NicQuery};
use sdc_clients::vmapi::VmQuery;
use sdc_clients::{Error, MacAddr};
use serde_json::json;

use crate::apply::{self, Found};
use crate::listing::NicListing;
use crate::outcome::Outcome;
use crate::parts::Parts;
use crate::plan::{Verdict, candidate};
use crate::view::LocalView;

/// VMs per request to NAPI: their uuids fit a URL.
const AT_A_TIME: usize = 50;
/// Records per page of the answer: the smallest page from the start, since most destroyed VMs have
/// none left.
const PAGE: u32 = 100;
/// Records read or adopted at once.
const AT_ONCE: usize = 4;

/// Why VMAPI's destroyed VMs are not looked into.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error("the destroyed VMs of this node")]
    Request(#[from] Error),
    #[error("NAPI did not honour belongs_to_uuid")]
    Unfiltered,
}

/// Adds to the list what it cannot show; with `all`, asks VMAPI too. Returns true if it added
/// anything: a view that was taken before does not judge it.
pub(crate) async fn add(
    parts: &Parts,
    listing: &mut NicListing,
    view: &LocalView,
    all: bool,
) -> bool {
    if !view.is_complete() {
        return false;
    }
    let listed: BTreeSet<MacAddr> = listing.nics.iter().map(|nic| nic.mac).collect();
    let mut found = of_last_run(parts, &listed).await;
    if all {
        match of_vmapi(parts, &listed, view).await {
            Ok(records) => found.extend(records),
            Err(err) => {
                let reason = parts.failed(&err);
                tracing::warn!(%reason, "cannot look into destroyed VMs");
            }
        }
    }
    let cn = &parts.config.policy.cn_uuid;
    let ours = |nic: &Nic| nic.cn_uuid.as_deref() == Some(cn.as_str());
    let (mut found, orphans): (Vec<Nic>, Vec<Nic>) = found.into_iter().partition(ours);
    let adopted = futures_util::stream::iter(orphans).map(|nic| adopted(parts, nic));
    found.extend(
        adopted.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect::<Vec<_>>().await,
    );
    let before = listing.nics.len();
    for nic in found {
        parts.departures.stray_settled(nic.mac);
        if ours(&nic) && listing.nics.iter().all(|known| known.mac != nic.mac) {
            listing.nics.push(nic);
        }
    }
    listing.nics.len() > before
}

/// Adopts a record. Returns it as it is then.
async fn adopted(parts: &Parts, nic: Nic) -> Option<Nic> {
    if apply::adopt(parts, nic.mac, &nic.belongs_to_uuid).await != Outcome::Done {
        return None;
    }
    match apply::read(parts, nic.mac).await {
        Ok(Found::Record(fresh)) => Some(fresh.value),
        _ => None,
    }
}

/// Returns the records of MACs that were on shown VMs here in the last run and are on none now.
async fn of_last_run(parts: &Parts, listed: &BTreeSet<MacAddr>) -> Vec<Nic> {
    parts.node.with(|inventory| parts.departures.match_strays(&inventory.view));
    let read = futures_util::stream::iter(parts.departures.strays()).map(|(mac, vm)| async move {
        if !listed.contains(&mac) {
            match apply::read(parts, mac).await {
                Ok(Found::Record(fresh))
                    if candidate::concerns(&fresh.value, &vm, &parts.config.policy) =>
                {
                    return Some(fresh.value);
                }
                Ok(_) => {}
                // The next pass, or the next run, asks again.
                Err(_) => return None,
            }
        }
        parts.departures.stray_settled(mac);
        None
    });
    read.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await
}

/// Returns the records of VMs that VMAPI lists as destroyed or failed on this node.
async fn of_vmapi(
    parts: &Parts,
    listed: &BTreeSet<MacAddr>,
    view: &LocalView,
) -> Result<Vec<Nic>, Unread> {
    let Some(vmapi) = &parts.clients.vmapi else { return Ok(Vec::new()) };
    let policy = &parts.config.policy;
    // VMAPI's `state` takes one state, and not this one: 409.
    let gone = json!({"or": [{"eq": ["state", "destroyed"]}, {"eq": ["state", "failed"]}]});
    let (server_uuid, predicate) = (Some(policy.cn_uuid.clone()), Some(gone));
    let vms = vmapi.list_vms(&VmQuery { server_uuid, predicate, ..VmQuery::default() }).await?;
    // The filter is not trusted.
    let gone = vms.into_iter().filter(|vm| Verdict::of(vm).is_gone_from(&policy.cn_uuid));
    let gone: Vec<String> = gone.map(|vm| vm.uuid).filter(|vm| !view.has_vm(vm)).collect();
    let mut found = Vec::new();
    for some in gone.chunks(AT_A_TIME) {
        let records = records_of(parts, some).await?.into_iter().filter(|nic| {
            candidate::concerns(nic, &nic.belongs_to_uuid, policy) && !listed.contains(&nic.mac)
        });
        found.extend(records);
    }
    Ok(found)
}

/// Returns all records of these VMs.
async fn records_of(parts: &Parts, vms: &[String]) -> Result<Vec<Nic>, Unread> {
    let query =
        NicQuery { belongs_to_uuid: vms.to_vec(), limit: Some(PAGE), ..NicQuery::default() };
    let mut pages = parts.clients.napi.nic_pages(NicList::Nics, &query);
    let mut found = Vec::new();
    while let Some(page) = pages.try_next().await? {
        if page.nics.iter().any(|nic| !vms.contains(&nic.belongs_to_uuid)) {
            return Err(Unread::Unfiltered);
        }
        found.extend(page.nics);
    }
    Ok(found)
}
