// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the node sends to the honest node's data port, byte by byte.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use migration_core::protocol::{Accepted, Offer, State, What};
use sdc_clients::http::Call;
use sdc_clients::identity::Identity;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use trust::Holder;

use super::super::common::centre::Centre;
use super::node::{Compromised, about, root};
use super::rows::Rows;

const MAGIC: &[u8; 8] = b"VMSTRM\0\x03";
const DATA: u8 = 1;
const LAST: u8 = 2;

/// Offers a stream into the copy as the agent that this holder is of.
async fn offered(node: &Compromised, holder: &Arc<Holder>, revision: u64) -> Accepted {
    let offer = Offer {
        about: about(revision),
        dataset: format!("{}/data", root()),
        image: None,
        properties: Default::default(),
        is_bare: false,
    };
    let call = Call::new(Method::POST, &["streams"]).json(&offer);
    node.agent_as(holder).execute(call).await.unwrap().json("an address and a token").unwrap()
}

fn opening(token: &str) -> Vec<u8> {
    let id = (0..token.len()).step_by(2);
    let id = id.map(|at| u8::from_str_radix(&token[at..at + 2], 16).unwrap());
    MAGIC.iter().copied().chain(id).collect()
}

fn frame(kind: u8, number: u64, length: u32, content: &[u8]) -> Vec<u8> {
    [&[kind][..], &number.to_be_bytes(), &length.to_be_bytes(), content].concat()
}

/// A last frame with one byte, which says so many frames and bytes.
fn last(frames: u64, bytes: u64) -> Vec<u8> {
    let totals = [frames.to_be_bytes(), bytes.to_be_bytes()].concat();
    frame(LAST, 0, 17, &[&totals[..], b"x"].concat())
}

/// Sends these bytes, and returns what came back before the end.
async fn sent(node: &Compromised, address: &str, bytes: &[u8]) -> Vec<u8> {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut stream =
        trust::connect(&node.holder, stream, Identity::Agent(node.other)).await.unwrap();
    let mut back = Vec::new();
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let _ = stream.read_to_end(&mut back).await;
    back
}

/// Returns where the honest node's data port is.
pub async fn all(centre: &Centre, node: &Compromised, rows: &mut Rows) -> SocketAddr {
    let before = centre.lab.node().datasets().unwrap();
    // A token that was issued for another node, which is honest.
    assert_eq!(
        node.ordered(about(19), What::Receive { from: node.third, image: None }).await.state,
        State::Done
    );
    let third = offered(node, &node.honest(Identity::Agent(node.third)), 19).await;
    let mut seen = node.status().await["refused_streams"].clone();
    let mut refused = async |name: &str, reason: &str, address: &str, bytes: Vec<u8>| {
        let back = sent(node, address, &bytes).await;
        let want = seen[reason].as_u64().unwrap() + 1;
        seen[reason] = want.into();
        let waited = tokio::time::timeout(Duration::from_secs(20), node.has_refused(reason, want));
        let is_refused = waited.await.is_ok() && back.is_empty();
        rows.row(name, reason, if is_refused { reason } else { "taken" });
    };
    refused("a stream of another node", "wrong_token", &third.address, opening(&third.token)).await;
    let unknown = opening(&"0".repeat(32));
    refused("a stream that nobody has asked for", "unknown_token", &third.address, unknown).await;
    refused("no opening", "opening", &third.address, b"VMSTRM\0".to_vec()).await;
    let mut older = opening(&third.token);
    older[7] = 2;
    refused("an opening of an earlier version", "opening", &third.address, older).await;

    assert_eq!(
        node.ordered(about(20), What::Receive { from: node.cn, image: None }).await.state,
        State::Done
    );
    for (name, reason, bytes) in [
        ("a frame of no kind", "kind", frame(9, 0, 1, b"x")),
        ("a frame before its turn", "order", frame(DATA, 1, 1, b"x")),
        (
            "a frame that is repeated",
            "order",
            [frame(DATA, 0, 1, b"x"), frame(DATA, 0, 1, b"x")].concat(),
        ),
        ("a frame that is too long", "length", frame(DATA, 0, u32::MAX, b"x")),
        ("a frame of nothing", "length", frame(DATA, 0, 0, b"")),
        ("a last frame without totals", "length", frame(LAST, 0, 1, b"x")),
        ("an end without last frame", "cut", frame(DATA, 0, 1, b"x")),
        ("a frame that ends in the middle", "cut", frame(DATA, 0, 100, b"x")),
        ("totals of more than came", "total", last(1, 2)),
        ("totals of fewer frames", "total", last(0, 1)),
        ("more after the end", "after_the_end", [last(1, 1), b"x".to_vec()].concat()),
    ] {
        let accepted = offered(node, &node.holder, 20).await;
        let opening = opening(&accepted.token);
        refused(name, reason, &accepted.address, [opening.clone(), bytes].concat()).await;
        if name == "more after the end" {
            refused("the same stream again", "used_token", &accepted.address, opening).await;
        }
    }
    let names = |all: &simnode::datasets::Datasets| -> Vec<String> {
        all.snapshots(&format!("{}/data", root())).iter().map(|it| it.name.clone()).collect()
    };
    assert_eq!(names(&centre.lab.node().datasets().unwrap()), names(&before));
    third.address.parse().unwrap()
}
