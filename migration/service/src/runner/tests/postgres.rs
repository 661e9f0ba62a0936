// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Two services on a PostgreSQL server that is killed twice, while each of them is killed once and replies to
//! COMMIT are lost. Skipped with a word where PostgreSQL is not installed.

use std::sync::Arc;
use std::time::Duration;

use pretty_assertions::assert_eq;
use rig::postgres::{Cluster, Cut, Proxy, address};
use serde_json::{Value, json};
use store::Store;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::fleet::{Fleet, command, vm};
use super::node::{ONE, TWO};
use super::story::AUTOMATIC;
use crate::runner::lead;
use crate::state::Service;
use migration_core::record::{Phase, State};

/// So many migrations.
const MOVES: u8 = 50;
/// Another service takes over after this.
const LEASE: Duration = Duration::from_secs(6);
/// All of it takes less, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(600);

/// A running service.
struct Running {
    service: Service,
    rounds: JoinHandle<()>,
}

async fn start(fleet: &Arc<Fleet>, address: &str) -> Running {
    let store = Store::postgres(address).unwrap();
    let service = fleet.service(&store).await;
    let rounds = tokio::spawn(lead(service.clone(), store, LEASE));
    Running { service, rounds }
}

impl Running {
    /// Stops it where it is.
    async fn kill(self) {
        self.rounds.abort();
        drop(self.rounds.await);
    }
}

/// Returns the phase and state of each VM's record, of a store that may be away for a while.
async fn states(service: &Service) -> Vec<(Phase, State)> {
    loop {
        if let Ok(all) = service.records.all().await {
            return all.iter().map(|kept| (kept.record.phase, kept.record.state)).collect();
        }
    }
}

/// Waits until so many VMs have moved.
async fn moved(service: &Service, count: usize) {
    let until = Instant::now() + PATIENCE;
    loop {
        let all = states(service).await;
        if all.iter().filter(|(_, state)| *state == State::Successful).count() >= count {
            return;
        }
        let failed = all.iter().find(|(_, state)| *state == State::Failed);
        assert_eq!(failed, None);
        assert!(Instant::now() < until, "only {all:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// How often VMAPI's record has moved to another node.
fn moves(fleet: &Fleet, vm: Uuid) -> usize {
    let is_move = |it: &&Value| {
        let parts = it["changeKind"]["subResources"].as_array().unwrap();
        it["changedResourceId"] == json!(vm) && parts.contains(&json!("server_uuid"))
    };
    fleet.services.vmapi.published().iter().filter(is_move).count()
}

/// What a lost migration, and one that is done twice, would show.
async fn check(fleet: &Fleet, service: &Service) {
    let records = service.records.all().await.unwrap();
    assert_eq!(records.len(), usize::from(MOVES));
    let centres = fleet.centres();
    for n in 1..=MOVES {
        let centre = &centres[&vm(n)];
        let record = &records.iter().find(|kept| kept.record.vm_uuid == vm(n)).unwrap().record;
        let (source, target) = (&centre.hosts[&ONE], &centre.hosts[&TWO]);
        assert_eq!((record.state, &centre.broken), (State::Successful, &None), "{n}");
        assert_eq!((moves(fleet, vm(n)), target.boots, source.boots), (1, 1, 0), "{n}");
        let vmapi = fleet.services.vmapi.get(&vm(n).to_string()).unwrap();
        assert_eq!(vmapi["server_uuid"], json!(TWO), "{n}");
        let entries =
            |phase| record.progress_history.iter().filter(|entry| entry.phase == phase).count();
        let syncs = usize::try_from(record.num_sync_phases).unwrap();
        let history = (entries(Phase::Begin), entries(Phase::Sync), entries(Phase::Switch));
        assert_eq!(history, (1, syncs, 1), "{n}");
        // A note that was written twice would have taken one more: the last is the switch's own.
        assert_eq!(source.taken, syncs + 1, "{n}");
        assert!(!source.copy.as_ref().unwrap().quota_lifted && !target.held, "{n}");
    }
}

#[tokio::test(flavor = "multi_thread")] // M54
#[ignore = "servers: `.ci/run` has it in its lane of servers"]
async fn fifty_migrations_survive_two_kills_of_the_server_and_one_of_each_service() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.database("migrations").await;
    let proxy = Proxy::start(cluster.socket_dir());
    let address = address(proxy.dir(), "migrations");
    let fleet = Fleet::new(MOVES);
    let reader = fleet.service(&Store::postgres(&cluster.address("migrations")).unwrap()).await;
    let giving = fleet.service(&Store::postgres(&address).unwrap()).await;
    for n in 1..=MOVES {
        // Nothing else commits yet.
        match n % 5 {
            0 => proxy.cut_next(Cut::Before),
            1 => proxy.cut_next(Cut::After),
            _ => {}
        }
        command(&giving, vm(n), AUTOMATIC).await;
    }
    assert_eq!(states(&reader).await.len(), usize::from(MOVES), "one is lost");
    let one = start(&fleet, &address).await;
    let two = start(&fleet, &address).await;
    let story = async {
        moved(&reader, 8).await;
        cluster.kill();
        cluster.run().await;
        moved(&reader, 16).await;
        one.kill().await;
        let one = start(&fleet, &address).await;
        moved(&reader, 24).await;
        cluster.kill();
        cluster.run().await;
        moved(&reader, 32).await;
        two.kill().await;
        let two = start(&fleet, &address).await;
        moved(&reader, usize::from(MOVES)).await;
        (one, two)
    };
    let cutting = async {
        for n in 0_usize.. {
            sleep(Duration::from_millis(300)).await;
            if !proxy.is_armed() {
                proxy.cut_next(if n.is_multiple_of(3) { Cut::Before } else { Cut::After });
            }
        }
    };
    let (one, two) = tokio::select! {
        running = story => running,
        () = cutting => unreachable!("it never returns"),
    };
    check(&fleet, &reader).await;
    for n in 1..=MOVES {
        let by = if n % 2 == 0 { &two } else { &one };
        command(&by.service, vm(n), "migration_action=finalize").await;
    }
    let until = Instant::now() + PATIENCE;
    while !states(&reader).await.is_empty() {
        assert!(Instant::now() < until, "{:?}", states(&reader).await);
        sleep(Duration::from_millis(100)).await;
    }
    let centres = fleet.centres();
    for n in 1..=MOVES {
        let hosts = &centres[&vm(n)].hosts;
        assert!(hosts[&ONE].copy.is_none() && hosts[&TWO].copy.as_ref().unwrap().running, "{n}");
        assert_eq!((&centres[&vm(n)].broken, moves(&fleet, vm(n))), (&None, 1), "{n}");
    }
}
