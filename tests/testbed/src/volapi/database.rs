// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A PostgreSQL server is killed, with all of its processes, before each call of a create and of a delete.
//! Skipped with a word where PostgreSQL is not installed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rig::postgres::Cluster;
use store::{Call, Fault, Faults, Store};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::crash::{
    Left, VOLUME, check_created, check_deleted, create, data_centre, delete, settle,
};
use super::fuse::Fuse;
use super::running::start;

/// An absence that a caller must not see. The store waits 15 s for its server; a busy machine may need more to start
/// one.
const SOON: Duration = Duration::from_secs(10);

/// Kills the server before one call; it is started again meanwhile.
#[derive(Debug)]
struct Killer {
    cluster: Arc<Cluster>,
    left: Mutex<Option<usize>>,
    restart: Mutex<Option<JoinHandle<Duration>>>,
}

impl Killer {
    fn due(&self) -> bool {
        let mut left = self.left.lock().unwrap();
        match *left {
            Some(0) => {
                *left = None;
                true
            }
            Some(more) => {
                *left = Some(more - 1);
                false
            }
            None => false,
        }
    }

    /// Kills no more; returns how long the server was away, if it was killed, once it is back.
    async fn rest(&self) -> Option<Duration> {
        self.left.lock().unwrap().take();
        let restart = self.restart.lock().unwrap().take();
        match restart {
            Some(restart) => Some(restart.await.unwrap()),
            None => None,
        }
    }
}

impl Faults for Killer {
    fn next(&self, _: Call) -> Fault {
        Fault::None
    }

    fn held(&self, _: Call, is_done: bool) -> BoxFuture<'_, ()> {
        if !is_done && self.due() {
            let since = Instant::now();
            self.cluster.kill();
            let cluster = Arc::clone(&self.cluster);
            let restart = tokio::spawn(async move {
                cluster.run().await;
                since.elapsed()
            });
            *self.restart.lock().unwrap() = Some(restart);
        }
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test(flavor = "multi_thread")] // V50 V51
async fn the_database_may_be_killed_before_each_call() {
    let Some(cluster) = Cluster::start().await else { return };
    let cluster = Arc::new(cluster);
    for creates in [true, false] {
        for step in 0.. {
            let address = cluster.database(&format!("of_{creates}_{step}")).await;
            let (cluster, left, restart) =
                (Arc::clone(&cluster), Mutex::default(), Mutex::default());
            let killer = Arc::new(Killer { cluster, left, restart });
            let store = Store::postgres(&address).unwrap();
            let store = store.with_faults(Arc::clone(&killer) as Arc<dyn Faults>);
            let (data_centre, fuse) = (data_centre(), Fuse::none());
            let service = start(&store, &data_centre, &fuse).await.unwrap();
            if !creates {
                create(&service, VOLUME, "name").await.unwrap();
                settle(&data_centre, &service).await;
            }
            *killer.left.lock().unwrap() = Some(step);
            let was_said = match creates {
                true => create(&service, VOLUME, "name").await.is_ok(),
                false => delete(&service, VOLUME).await.is_ok(),
            };
            let away = killer.rest().await;
            let place = format!("creates: {creates}, killed before call {step}");
            let was_late = away.is_some_and(|away| away > SOON);
            assert!(was_said || was_late, "{place}: the server was back after {away:?}");
            let left = Left { place, store, data_centre, fuse, survivor: Some(service) };
            match creates {
                true => check_created(&left).await,
                false => check_deleted(&left, was_said).await,
            }
            if away.is_none() {
                assert!(step > 5, "{}: too few calls", left.place);
                break;
            }
        }
    }
}
