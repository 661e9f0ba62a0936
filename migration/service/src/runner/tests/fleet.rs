// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Many VMs on one node, each with its own [`Centre`]: what the service asks a VM's agents is answered there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::future::BoxFuture;
use sdc_clients::Error;
use sdc_clients::http::{Request, Response, Transport};
use store::Store;
use uuid::Uuid;

use super::centre::{Centre, Find, Services, is_for_its_peer};
use super::node::VM;
use super::world::service;
use crate::action_params::ActionParams;
use crate::params::Params;
use crate::state::Service;

/// Returns the VM of this number.
pub fn vm(n: u8) -> Uuid {
    let mut bytes = *VM.as_bytes();
    bytes[15] = n;
    Uuid::from_bytes(bytes)
}

/// The VMs. What is of no VM is answered by the one of number 0.
#[derive(Debug)]
pub struct Fleet {
    centres: Arc<Mutex<BTreeMap<Uuid, Centre>>>,
    pub services: Services,
}

impl Fleet {
    /// VMs with the numbers from 1 on, all running.
    pub fn new(count: u8) -> Arc<Fleet> {
        let centres: BTreeMap<Uuid, Centre> =
            (0..=count).map(|n| (vm(n), Centre::new(vm(n), true))).collect();
        let centres = Arc::new(Mutex::new(centres));
        let known = Arc::clone(&centres);
        let find: Find =
            Arc::new(move |vm, work| work(known.lock().unwrap().get_mut(&vm).unwrap()));
        let services = Services::new(find, centres.lock().unwrap().values());
        Arc::new(Fleet { centres, services })
    }

    pub fn centres(&self) -> MutexGuard<'_, BTreeMap<Uuid, Centre>> {
        self.centres.lock().unwrap()
    }

    /// Returns a service on this store.
    pub async fn service(self: &Arc<Fleet>, store: &Store) -> Service {
        let clock = self.centres()[&vm(0)].clock;
        service(self.clone(), store, clock).await
    }
}

/// Gives a command; one whose fate is not known is given again until it was taken, or is refused because it was.
pub async fn command(service: &Service, vm: Uuid, query: &str) {
    let asked = ActionParams::read(&Params::of_query(Some(query))).unwrap();
    loop {
        let known = service.vm(vm).await.unwrap();
        match service.command(&known, asked.action.unwrap(), &asked, None).await {
            Ok(_) => return,
            Err(refused) if [404, 412].contains(&refused.status()) => return,
            Err(refused) => assert_eq!(refused.status(), 503, "{refused:?}"),
        }
    }
}

/// Finds whose request it is: its uuid is in the path or the body, or its address is.
fn about(request: &Request) -> Uuid {
    let path = request.url.path();
    let body = String::from_utf8_lossy(request.body.as_deref().unwrap_or_default()).into_owned();
    let known = &vm(0).to_string()[..34];
    let find = |text: &str| text.get(text.find(known)?..)?.get(..36)?.parse().ok();
    find(path).or_else(|| find(&body)).unwrap_or(vm(0))
}

impl Transport for Fleet {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            is_for_its_peer(&request);
            let answer = match self.services.mock(&request) {
                Some(mock) => mock.send(request).await?,
                None => self.centres().get_mut(&about(&request)).unwrap().answer(&request),
            };
            tokio::task::yield_now().await;
            Ok(answer)
        })
    }
}
