// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a process left that died, and what did not succeed: tickets are given back, creations that were cut
//! off fail, VMAPI is asked again to destroy storage VMs, snapshots and roll-backs go on.

use store::{Batch, Expect, Fence};

use super::follow::Trouble;
use super::parts::Service;
use super::state::{Count, LATEST, Right};
use crate::records::{Doing, Work, of_storage, written};

impl Service {
    /// Ends the work that earlier runs of this instance left; with the lease also that of others whose
    /// tickets have expired. Without the lease, work is left to its holder shortly before it expires.
    /// What another service does not answer for is left to the next pass.
    pub async fn tidy(&self, fence: Option<&Fence>) -> Result<(), Trouble> {
        for left in self.shared.records.all_work().await? {
            let is_own = left.value.instance == self.shared.settings.instance;
            let is_over =
                fence.is_some() && left.value.expires_at < daemon::wall::now().as_second();
            let right = match fence {
                Some(fence) if is_own || is_over => Right::Lease(fence),
                None if is_own => Right::Own(left.value.expires_at),
                _ => continue,
            };
            if !right.holds() {
                continue;
            }
            let Some(_busy) = self.works.busy_with(&left.key) else { continue };
            match self.end(&left.value, right).await {
                Ok(false) => {}
                Ok(true) => {
                    let records = &self.shared.records;
                    let mut batch = Batch::new();
                    fence.into_iter().for_each(|fence| batch.require(fence));
                    let expect = Expect::Etag(left.etag);
                    records.work.delete_in(&mut batch, &left.key, expect).map_err(of_storage)?;
                    written(records.store.commit(batch).await.map(drop), ())?;
                    // Snapshots and roll-backs go on here as a matter of course.
                    if left.value.doing != Doing::Snapshots {
                        self.shared.counts.add(Count::Recovered);
                        let (volume, doing) = (&left.value.volume, left.value.doing);
                        tracing::info!(volume, work = %doing, "finished work that an earlier run left");
                    }
                }
                Err(Trouble::Peer(error)) => {
                    tracing::warn!(%error, volume = left.value.volume, "cannot finish work that an earlier run left; it is tried again");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn is_young(&self, work: &Work) -> bool {
        let life = i64::try_from(self.shared.settings.ticket_life.as_secs()).unwrap_or_default();
        daemon::wall::now().as_second() < work.expires_at - life + LATEST
    }

    /// Ends it; returns whether it is over.
    async fn end(&self, work: &Work, right: Right<'_>) -> Result<bool, Trouble> {
        match work.doing {
            Doing::Snapshots => return self.snapshots.settle(&work.volume, right).await,
            Doing::Create => self.creates.end(&work.volume, right).await?,
            Doing::Delete => self.deletes.end(&work.volume, right).await?,
            // One write did it, or none.
            Doing::Rename => {}
        }
        let tickets = self.shared.peers.tickets_of(&work.ticket_id, work.expires_at).await?;
        for ticket in &tickets {
            if !right.holds() {
                return Ok(false);
            }
            self.shared.peers.release_ticket(ticket).await?;
        }
        // Its ticket may yet come: the request for it was sent shortly before the process died.
        Ok(right.holds() && (!tickets.is_empty() || !self.is_young(work)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use mocks::faults::Mock;
    use mocks::transport::InProcess;
    use mocks::{cnapi, vmapi};
    use sdc_clients::Http;
    use serde_json::json;
    use store::Store;
    use volumes_core::volume::{NewVolume, State, Volume};

    use super::*;
    use crate::peers::Peers;
    use crate::records::Records;
    use crate::service::ServiceConfig;

    const VOLUME: &str = "11111111-1111-4111-8111-111111111111";
    const VM: &str = "22222222-2222-4222-8222-222222222222";
    const NODE: &str = "44444444-4444-4444-8444-444444444444";
    const OWNER: &str = "33333333-3333-4333-8333-333333333333";

    fn http(mock: impl Mock) -> Http {
        let transport = Arc::new(InProcess::new(mock));
        Http::with_transport("http://peer.sim", "volapi", transport).unwrap().without_retries()
    }

    async fn service(vmapi: &vmapi::Store, cnapi: &cnapi::Store) -> Service {
        let [papi, napi, imgapi, workflow] = [(); 4].map(|()| http(cnapi.clone()));
        let (vmapi, cnapi) = (http(vmapi.clone()), http(cnapi.clone()));
        let peers = Peers { vmapi, cnapi, papi, napi, imgapi, workflow, snapshots: None };
        let settings = ServiceConfig {
            instance: "one".to_owned(),
            images: [String::new(), String::new()],
            image_source: String::new(),
            reboot_grace: Duration::from_secs(300),
            ticket_life: Duration::from_secs(600),
            failed_keep: None,
            rfd26: false,
            max_snapshots: 16,
        };
        let records = Records::open(Store::in_memory().unwrap()).await.unwrap();
        Service::new(records, peers, settings)
    }

    fn volume(state: State) -> Volume {
        let mut volume = Volume::new(NewVolume {
            uuid: VOLUME.to_owned(),
            labels: None,
            name: "data".to_owned(),
            owner_uuid: OWNER.to_owned(),
            size: 10240.0,
            create_timestamp: 1_794_000_000_000,
            refs: Vec::new(),
            networks: Vec::new(),
            vm_uuid: VM.to_owned(),
        });
        volume.set_state(state);
        volume
    }

    #[tokio::test(start_paused = true)] // V138
    async fn an_instance_whose_right_ends_on_the_way_asks_for_and_writes_nothing_more() {
        for (doing, state, has_vm) in [
            (Doing::Delete, State::Deleting, true),
            (Doing::Delete, State::Deleting, false),
            (Doing::Create, State::Creating, false),
            (Doing::Rename, State::Ready, true),
        ] {
            let (vmapi, cnapi) = (vmapi::Store::default(), cnapi::Store::default());
            if has_vm {
                let mut vm = json!({"uuid": VM, "owner_uuid": OWNER, "brand": "joyent"});
                (vm["state"], vm["server_uuid"]) = (json!("running"), json!(NODE));
                vmapi.put(vm.as_object().cloned().unwrap());
            }
            let service = service(&vmapi, &cnapi).await;
            let records = &service.shared.records;
            let before = volume(state);
            records.volumes.put(VOLUME, Expect::Absent, &before).await.unwrap();
            let work = Work {
                instance: "one".to_owned(),
                ticket_id: "ticket".to_owned(),
                expires_at: daemon::wall::now().as_second() + 600,
                doing,
                volume: VOLUME.to_owned(),
            };
            service.shared.peers.ticket(&work.ticket_id, work.expires_at).await.unwrap();
            let held = async || {
                let open = service.shared.peers.tickets_of(&work.ticket_id, work.expires_at).await;
                open.unwrap().len()
            };
            let deletes = || vmapi.log().all().iter().filter(|it| it.method == "DELETE").count();
            let now = async || records.volume(VOLUME, None).await.unwrap().map(|it| it.value);
            let place = format!("{doing}, the storage VM is there: {has_vm}");

            assert!(!service.end(&work, Right::Own(0)).await.unwrap(), "{place}: it is not over");
            assert_eq!((held().await, deletes()), (1, 0), "{place}");
            assert_eq!(now().await.as_ref(), Some(&before), "{place}");

            assert!(service.end(&work, Right::Own(work.expires_at)).await.unwrap(), "{place}");
            let is_asked = usize::from(doing == Doing::Delete && has_vm);
            assert_eq!((held().await, deletes()), (0, is_asked), "{place}");
            assert_eq!(now().await.as_ref() == Some(&before), has_vm, "{place}");
        }
    }
}
