// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Runs the groups of a recording, each against a fresh mock.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context;
use mocks::vmapi::Server;

use super::compare::Memory;
use super::world;
use crate::conform::tally::Tally;
use crate::conform::transcript::{Asked, Group, Step, Transcript};
use crate::conform::wire::exchange;

/// The groups that need migrations.
const LEFT_OUT: [&str; 6] =
    ["migrate-errors", "migrate-table", "migrate-life", "migrations", "watch", "config"];

/// Replays the recording, or one group of it.
pub(super) async fn replay(transcript: &Transcript, only: Option<&str>) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let wanted = |group: &&Group| only.is_none_or(|only| only == group.name);
    for group in transcript.groups.iter().filter(wanted) {
        if LEFT_OUT.contains(&group.name.as_str()) {
            let count = group.exchanges().count();
            let name = &group.name;
            tally.notes.push(format!("left out: {name}, {count} exchanges of migrations"));
            continue;
        }
        replay_group(group, &mut tally).await.with_context(|| group.name.clone())?;
    }
    Ok(tally)
}

async fn replay_group(group: &Group, tally: &mut Tally) -> anyhow::Result<()> {
    let server = Server::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
    world::begin(server.store(), &group.world);
    let mut memory = Memory::default();
    for step in &group.steps {
        match step {
            Step::World(change) => {
                for asked in world::change(server.store(), change, group)? {
                    let done = exchange(server.addr(), &asked).await?;
                    let status = done.map(|done| done.status);
                    anyhow::ensure!(status == Some(200), "{change}: the mock answered {status:?}");
                }
            }
            Step::Exchange(one) => {
                // What a URI may not have was sent as it is; the mock's HTTP library refuses it.
                let query = one.request.query.replace('>', "%3E");
                let asked = Asked { query, ..one.request.clone() };
                let got = exchange(server.addr(), &asked).await?;
                let faults = memory.answer(&one.response, got.as_ref()).err();
                tally.case(&one.place(&group.name), faults.as_slice());
            }
        }
    }
    server.stop().await;
    Ok(())
}
