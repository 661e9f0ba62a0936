// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Connections to the data port that say nothing.

use std::sync::Arc;
use std::time::Duration;

use migration_core::intent::End;
use migration_core::protocol::State;
use simnode::node::Zfs;
use tokio::time::{Instant, sleep};

use crate::net::knock;
use crate::world::World;

#[tokio::test(start_paused = true)] // M126
async fn connections_that_open_nothing_keep_no_stream_waiting() {
    let world = World::new(Zfs::Illumos).await;
    let net = Arc::clone(&world.net);
    let dials = tokio::spawn(async move {
        let mut held = Vec::new();
        for _ in 0..2000 {
            held.push(knock(&net, "target.example").await.unwrap());
        }
        held
    });
    sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    assert_eq!(world.send(End::Source, 1).await.unwrap(), State::Done);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    world.are_same();
    dials.abort();
}
