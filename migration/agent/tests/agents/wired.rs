// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A stream over the connection that agents make, with an attacker on the network between them.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use migration_agent::wire::Wire as _;
use migration_core::stream::{Meter, Rate, Refusals, Tokens, accept, send};
use sdc_clients::identity::Identity;
use simnode::node::Zfs;
use tokio::io::{AsyncReadExt as _, AsyncWrite};
use trust::Keeper;
use uuid::Uuid;

use crate::net::{Fault, Net, Port, knock};
use crate::world::World;

const SOURCE: Identity = Identity::Agent(Uuid::from_u128(1));
const TARGET: Uuid = Uuid::from_u128(2);

/// What the receiver was fed, and whether that was said to be all.
#[derive(Clone, Default)]
struct Fed(Arc<Mutex<(Vec<u8>, bool)>>);

impl AsyncWrite for Fed {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.0.lock().unwrap().0.extend(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.0.lock().unwrap().1 = true;
        Poll::Ready(Ok(()))
    }
}

/// Sends these bytes; returns whether both ends were content, and what was fed.
async fn sent(net: &Arc<Net>, content: &[u8], fault: Option<Fault>) -> (bool, Vec<u8>, bool) {
    let source = Port::new(net, "source.example", SOURCE);
    let target = Port::new(net, "target.example", Identity::Agent(TARGET));
    fault.into_iter().for_each(|fault| net.fails(fault));
    let (tokens, fed) = (Tokens::new([1; 8]), Fed::default());
    let token = tokens.issue(()).unwrap();
    let (rate, meter, refusals) = (Rate::new(None), Meter::default(), Refusals::default());
    let all = (&rate, &meter, &refusals);
    let sending = async {
        let connection = source.dial("target.example", TARGET).await.ok()?;
        send(content, async { Ok(()) }, connection, &token, all).await.ok()
    };
    let receiving = async {
        let secured = target.accept().await.ok()?.0.await.ok()?;
        assert_eq!(secured.peer, Some(SOURCE));
        let (incoming, ()) = accept(secured.stream, &tokens, |()| true, &refusals).await.ok()?;
        incoming.feed(fed.clone(), async { Ok(()) }, all).await.ok()
    };
    let (one, two) = tokio::join!(sending, receiving);
    let (bytes, is_all) = fed.0.lock().unwrap().clone();
    (one.is_some() && two.is_some(), bytes, is_all)
}

#[tokio::test(start_paused = true)] // M44
async fn a_bit_that_flips_anywhere_in_a_stream_is_noticed() {
    let net: Arc<Net> = Arc::default();
    let content: Vec<u8> = (0..3000).map(|at| (at % 251) as u8).collect();
    assert_eq!(sent(&net, &content, None).await, (true, content.clone(), true));
    let carried = *net.carried.lock().unwrap();
    assert!(carried > content.len() + 500, "a handshake goes before it: {carried}");
    // An end of TLS is no end of the stream, and is not needed for one: what is flipped in it may go unnoticed.
    let last = carried - 64;
    for at in (0..last).step_by(97) {
        for fault in [Fault::Flip(at), Fault::Cut(at)] {
            let (is_content, fed, is_all) = sent(&net, &content, Some(fault)).await;
            assert!(!is_content && !is_all, "{fault:?}");
            assert!(content.starts_with(&fed) && fed.len() < content.len(), "{fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)] // M40
async fn a_sender_speaks_only_to_the_node_that_its_order_names() {
    let net: Arc<Net> = Arc::default();
    let source = Port::new(&net, "source.example", SOURCE);
    let stranger = Port::new(&net, "target.example", Identity::Agent(Uuid::from_u128(3)));
    let answering = async { stranger.accept().await.unwrap().0.await.map(drop) };
    let (dialed, answered) = tokio::join!(source.dial("target.example", TARGET), answering);
    assert!(dialed.is_err() && answered.is_err());
}

#[tokio::test(start_paused = true)] // M40
async fn a_peer_of_another_authority_is_refused_and_counted_as_foreign() {
    let world = World::new(Zfs::Illumos).await;
    let (net, agent) = (&world.net, &world.source);
    let who = (agent.name(), "test");
    agent.keeps(Keeper::new(
        &net.holder(agent.name()),
        "https://service.example",
        who,
        "".as_ref(),
    ));
    let count = async |of: u64| {
        let line = format!("migration_agent_handshakes_refused_total{{reason=\"foreign\"}} {of}");
        // The peer may read the refusal before it is counted here.
        for _ in 0..100 {
            if agent.metrics().await.contains(&line) {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("{line}: {:#?}", agent.metrics().await);
    };
    count(0).await;
    for (name, foreign) in [(world.target.name(), 1), (Identity::Service, 2)] {
        // The agent is who he wants, and he is nobody that the agent knows.
        let connection = knock(net, "source.example").await.unwrap();
        let connected = trust::connect(&net.stranger(name), connection, agent.name()).await;
        connected.unwrap().read(&mut [0]).await.unwrap_err();
        count(foreign).await;
    }
}
