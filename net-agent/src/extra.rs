// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Candidates that no list by `cn_uuid` shows: NICs of VMs that VMAPI lists as destroyed on this
//! node, and addresses that the last run of this agent left on the disk. A record among them that
//! never had a `cn_uuid` is given ours first (with `If-Match`, and only where VMAPI itself places
//! the destroyed VM on this node), and is then judged by the same predicate as all others: its
//! age starts anew with that write. Whatever does not answer here voids nothing.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt as _;
use sdc_clients::MacAddr;
use sdc_clients::napi::{BelongsToType, Nic, NicList, NicQuery};
use sdc_clients::vmapi::VmQuery;

use crate::agent::Agent;
use crate::apply::{Fresh, Outcome};
use crate::inventory::LocalView;
use crate::remote::RemoteView;

/// VMs per question to NAPI: their uuids fit a URL.
const AT_A_TIME: usize = 50;
/// Records per page of the answer.
const PAGE: u32 = 100;
/// Records read or adopted at once; the pace bounds them all the same.
const AT_ONCE: usize = 4;

impl Agent {
    /// Adds to the list what it cannot show; `all` asks VMAPI too (once per start). Says whether
    /// it found anything: a view that was taken before does not judge what is read here.
    pub(crate) async fn add_unlisted(
        &self,
        list: &mut RemoteView,
        view: &LocalView,
        all: bool,
    ) -> bool {
        if !view.complete {
            return false;
        }
        let mut found = self.unlisted_of_last_run(list).await;
        if all {
            match self.unlisted_of_vmapi(list, view).await {
                Ok(records) => found.extend(records),
                Err(why) => {
                    tracing::warn!(reason = why, "destroyed VMs are not looked into");
                    self.shared.status.failed(why);
                }
            }
        }
        let cn = &self.shared.policy.cn_uuid;
        let ours = |nic: &Nic| nic.cn_uuid.as_deref() == Some(cn.as_str());
        let (listed, orphans): (Vec<Nic>, Vec<Nic>) = found.into_iter().partition(ours);
        let adopted: Vec<Option<Nic>> = futures_util::stream::iter(orphans)
            .map(|nic| async move {
                match self.apply.adopt(nic.mac, &nic.belongs_to_uuid).await {
                    Outcome::Done => match self.apply.read(nic.mac).await {
                        Ok(Fresh::Record(fresh)) => Some(fresh.value),
                        _ => None,
                    },
                    _ => None,
                }
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let before = list.nics.len();
        for nic in listed.into_iter().chain(adopted.into_iter().flatten()) {
            self.shared.stray_settled(nic.mac);
            if ours(&nic) && list.nics.iter().all(|known| known.mac != nic.mac) {
                list.nics.push(nic);
            }
        }
        list.nics.len() > before
    }

    /// Records of addresses that were on shown VMs here in the last run and are on none now.
    async fn unlisted_of_last_run(&self, list: &RemoteView) -> Vec<Nic> {
        self.shared.match_strays();
        let strays = self.shared.strays();
        let listed: BTreeSet<MacAddr> = list.nics.iter().map(|nic| nic.mac).collect();
        let read = futures_util::stream::iter(strays).map(|(mac, vm)| {
            let listed = listed.contains(&mac);
            async move {
                if listed {
                    // The list has it: nothing more to remember.
                    self.shared.stray_settled(mac);
                    return None;
                }
                match self.apply.read(mac).await {
                    Ok(Fresh::Record(fresh)) if self.concerns(&fresh.value, &vm) => {
                        Some(fresh.value)
                    }
                    Ok(_) => {
                        self.shared.stray_settled(mac);
                        None
                    }
                    // Asked again by the next pass, or the next run.
                    Err(_) => None,
                }
            }
        });
        let read: Vec<Option<Nic>> = read.buffer_unordered(AT_ONCE).collect().await;
        read.into_iter().flatten().collect()
    }

    /// Records of VMs that VMAPI lists as destroyed on this node.
    async fn unlisted_of_vmapi(
        &self,
        list: &RemoteView,
        view: &LocalView,
    ) -> Result<Vec<Nic>, String> {
        let Some(vmapi) = &self.clients.vmapi else { return Ok(Vec::new()) };
        let cn = &self.shared.policy.cn_uuid;
        let query = VmQuery { server_uuid: Some(cn.clone()), state: Some("destroyed".to_owned()) };
        let vms = vmapi.list_vms(&query).await.map_err(|err| daemon::log::chain(&err))?;
        // The filter is not trusted: a VM of another node would be none of ours.
        let gone = vms.into_iter().filter(|vm| {
            vm.state == "destroyed"
                && vm.server_uuid.as_deref() == Some(cn)
                && !view.has_vm(&vm.uuid)
        });
        let gone: Vec<String> = gone.map(|vm| vm.uuid).collect();
        let listed: BTreeSet<MacAddr> = list.nics.iter().map(|nic| nic.mac).collect();
        let mut found = Vec::new();
        for some in gone.chunks(AT_A_TIME) {
            found.extend(self.records_of(some).await?.into_iter().filter(|nic| {
                self.concerns(nic, &nic.belongs_to_uuid) && !listed.contains(&nic.mac)
            }));
        }
        Ok(found)
    }

    /// All records of these VMs. In the smallest pages from the start: most destroyed VMs have
    /// none left, and a slow NAPI is not asked anew, for each group, how much it can serve.
    async fn records_of(&self, vms: &[String]) -> Result<Vec<Nic>, String> {
        let mut found: BTreeMap<MacAddr, Nic> = BTreeMap::new();
        let mut offset = 0;
        loop {
            let query = NicQuery {
                belongs_to_uuid: vms.to_vec(),
                limit: Some(PAGE),
                offset: Some(offset),
                ..NicQuery::default()
            };
            let page = self.clients.napi.list_nics(NicList::Nics, &query).await;
            let page = page.map_err(|err| daemon::log::chain(&err))?;
            if page.iter().any(|nic| !vms.contains(&nic.belongs_to_uuid)) {
                return Err("NAPI did not honour belongs_to_uuid".to_owned());
            }
            let (before, count) = (found.len(), page.len());
            found.extend(page.into_iter().map(|nic| (nic.mac, nic)));
            if u32::try_from(count).is_ok_and(|count| count < PAGE) {
                return Ok(found.into_values().collect());
            }
            if found.len() == before {
                return Err("NAPI gave the same page again".to_owned());
            }
            offset += PAGE;
        }
    }

    /// A zone's record of this VM with our `cn_uuid` or none: anything else is another's.
    fn concerns(&self, nic: &Nic, vm: &str) -> bool {
        let cn = nic.cn_uuid.as_deref().unwrap_or_default();
        nic.belongs_to_type == BelongsToType::Zone
            && nic.belongs_to_uuid == vm
            && (cn.is_empty() || cn == self.shared.policy.cn_uuid)
    }
}
