// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Nodes on which something takes long, or does not end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use migration_core::intent::End;
use migration_core::protocol::{Doing, Looked, Order, State, What};
use simnode::node::Zfs;
use tokio::time::Instant;

use crate::world::World;

#[tokio::test(start_paused = true)] // M232
async fn an_agent_answers_at_once_that_it_reads_and_lists_no_snapshots_that_nobody_needs() {
    let world = World::new(Zfs::Illumos).await;
    assert_eq!(world.send(End::Source, 1).await.unwrap(), State::Done);
    world.source.programs.slow.store(40, Ordering::SeqCst);
    let (began, revision) = (Instant::now(), world.next());
    let Looked::Working { working } = world.look(End::Source, revision, false).await else {
        panic!("it has answered")
    };
    assert!(began.elapsed() < Duration::from_secs(15));
    assert!(working.runs.unwrap().command.starts_with("zfs get"));
    let copy = loop {
        if let Looked::Observed(seen) = world.look(End::Source, revision, false).await {
            break seen.node.copy.unwrap();
        }
    };
    assert!((40..60).contains(&began.elapsed().as_secs()), "one reading");
    assert!(!copy.unlisted && copy.snapshots.len() == 1);
    // A sync lists once, after its snapshot was taken; what looks or destroys meanwhile and afterwards does not.
    let began = Instant::now();
    assert_eq!(world.send(End::Source, 2).await.unwrap(), State::Done);
    world.done(End::Source, What::Forget { keep: Some(2) }).await;
    let Looked::Observed(seen) = world.look(End::Source, world.next(), false).await else {
        panic!("it lists again")
    };
    assert!((40..60).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    let numbers: Vec<u32> = seen.node.copy.unwrap().snapshots.iter().map(|it| it.number).collect();
    assert_eq!(numbers, [2]);
    // What was listed long ago does not count, and another question ends what is read for the one before.
    tokio::time::sleep(Duration::from_secs(400)).await;
    let began = Instant::now();
    let looked = world.look(End::Source, world.next(), false).await;
    assert!(matches!(looked, Looked::Working { .. }));
    let brief = |revision| world.look(End::Source, revision, true);
    let Looked::Observed(seen) = brief(world.next()).await else { panic!("it reads") };
    assert!(began.elapsed() < Duration::from_secs(15));
    let copy = seen.node.copy.unwrap();
    assert!(copy.unlisted && copy.snapshots.is_empty() && !copy.bare && copy.running);
    // What has just been forgotten needs no list.
    world.done(End::Source, What::Forget { keep: None }).await;
    let Looked::Observed(seen) = brief(world.next()).await else { panic!("it reads") };
    assert!(!seen.node.copy.unwrap().unlisted);
}

#[tokio::test(start_paused = true)] // M233
async fn a_program_that_does_not_end_is_named_and_another_order_ends_it() {
    let world = World::new(Zfs::Illumos).await;
    world.target.programs.stuck.store(true, Ordering::SeqCst);
    let order = |order| Order {
        about: world.about(End::Target, world.next()),
        wait_ms: 12_000,
        order,
        instead: None,
    };
    let doing: Doing = world.post(&world.target, "orders", &order(What::Delete)).await.unwrap();
    assert_eq!(doing.state, State::Running);
    assert!(doing.runs.unwrap().command.starts_with("vmadm delete"));
    let began = Instant::now();
    let over: Doing = world.post(&world.target, "orders", &order(What::Over)).await.unwrap();
    assert_eq!((over.state, over.runs), (State::Done, None));
    assert!(began.elapsed() < Duration::from_secs(25));
}
