// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The instance with the lease, whose connection to its database is held up: another one may lead by then.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use store::{Call, Expect, Fault, Faults, Store};
use tokio::sync::watch;
use volapi::records::{Doing, Work};
use volapi::updater::{self, Updater};
use volumes_core::volume::State;

use super::asked::World;
use super::silent::Mute;

const TERM: Duration = Duration::from_secs(15);

/// Holds what is asked about leases up, on its way there, while it is set.
#[derive(Debug)]
struct Holds(watch::Sender<bool>);

impl Faults for Holds {
    fn next(&self, _call: Call) -> Fault {
        Fault::None
    }

    fn held(&self, call: Call, is_done: bool) -> BoxFuture<'_, ()> {
        if call != Call::Lease || is_done {
            return Box::pin(std::future::ready(()));
        }
        async { drop(self.0.subscribe().wait_for(|held| !held).await) }.boxed()
    }
}

#[tokio::test(start_paused = true)] // V141
async fn a_holder_whose_renewals_are_held_up_asks_nothing_after_its_term() {
    let holds = Arc::new(Holds(watch::Sender::new(false)));
    let world = World::over(&Store::in_memory().unwrap().with_faults(holds.clone())).await;
    let World { service, data_centre, .. } = &world;
    // Another run has marked the volume, and VMAPI does not agree: it is asked again and again.
    let refusal = json!({"status": 500, "body": {"code": "InternalError", "message": "not now"}});
    data_centre.behave(&[("vm_delete".to_owned(), refusal)].into_iter().collect());
    let (volume, _) = world.creating("name").await;
    let records = &service.shared.records;
    records.change(&volume, |volume| volume.set_state(State::Deleting)).await.unwrap();
    let work = Work {
        instance: "another".to_owned(),
        ticket_id: "ticket".to_owned(),
        expires_at: 0,
        doing: Doing::Delete,
        volume,
    };
    records.work.put("work", Expect::Absent, &work).await.unwrap();

    let state = Arc::new(updater::State::default());
    let updater = Updater {
        service: Arc::clone(service),
        state: Arc::clone(&state),
        listen: Box::new(|| Box::new(Mute)),
    };
    tokio::spawn(updater.run());
    let asked_within = async |span: Duration| {
        drop(data_centre.take_calls());
        tokio::time::sleep(span).await;
        let calls: Vec<Value> = data_centre
            .take_calls()
            .into_iter()
            .map(|call| json!([call.peer, call.method, call.url]))
            .collect();
        calls
    };
    assert!(!asked_within(Duration::from_secs(12)).await.is_empty() && state.has_lease());
    holds.0.send_replace(true);
    tokio::time::sleep(TERM).await;
    let late = asked_within(2 * TERM).await;
    assert!(late.is_empty() && !state.has_lease(), "asked after its term: {late:?}");
    // It leads again when its database answers.
    holds.0.send_replace(false);
    assert!(!asked_within(TERM).await.is_empty() && state.has_lease());
}
