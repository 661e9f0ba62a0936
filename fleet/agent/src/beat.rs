// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The heartbeat: the node's entry in `NODES`, which says who publishes it and what needs a person.

use std::sync::Arc;
use std::time::Duration;

use sdc_clients::Http;
use sdc_clients::fleet::{FleetError, KV_NODES, Need, Node, Program, Stored, What};
use sdc_clients::http::Call;
use serde_json::Value;
use tokio::time::sleep;

use crate::claim::{Seat, Turn};
use crate::parts::Parts;
use crate::programs::program;
use crate::status::{Count, Own, State, Task};

/// A program that takes longer does not answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often the entry may turn out to be another one within one heartbeat.
const TRIES: u32 = 3;
/// Needs that are told.
const MOST: usize = 20;

/// Tells how the node is, for ever.
pub(crate) async fn run(parts: Arc<Parts>) {
    let parts = &*parts;
    let every = parts.config.times.heartbeat;
    let mut seat = Seat::new(parts.me.clone());
    let mut retry = parts.retry();
    parts.status.is(Task::Heartbeat, State::Own(Own::Unclaimed));
    loop {
        let (programs, needs) = ask(parts).await;
        let wait = match beat(parts, &mut seat, &programs, &needs).await {
            Ok(()) => {
                retry.reset();
                parts.status.count(Count::Beats);
                parts.status.is(Task::Heartbeat, stand(&seat, parts));
                parts.random.around(every, 0.1)
            }
            // It may not have arrived. Who publishes is another one's only when his entry is read.
            Err(error) => {
                let said = parts.status.failed(&error);
                parts.status.is(Task::Heartbeat, State::Own(Own::Feed(said)));
                retry.next_delay().min(every)
            }
        };
        parts.holds.send_if_modified(|holds| {
            let is_new = *holds != seat.holds();
            *holds = seat.holds();
            is_new
        });
        sleep(wait).await;
    }
}

fn stand(seat: &Seat, parts: &Parts) -> State {
    match (seat.holds(), seat.other()) {
        (true, _) => State::Resting,
        (false, Some(other)) => {
            State::Own(Own::Claimed { other: other.clone(), mine: parts.me.machine.clone() })
        }
        (false, None) => State::Own(Own::Unclaimed),
    }
}

/// Writes the entry; or says in another one's that this program would publish too.
async fn beat(
    parts: &Parts,
    seat: &mut Seat,
    programs: &[Program],
    needs: &[Need],
) -> Result<(), FleetError> {
    let cn = &parts.cn_uuid;
    let mut holds = seat.holds();
    for _ in 0..TRIES {
        if holds {
            let mine = encoded(&entry(parts, seat, programs, needs));
            match parts.feed.beat(cn, mine, seat.revision()).await {
                Ok(revision) => {
                    seat.wrote(revision);
                    return Ok(());
                }
                Err(FleetError::WrongLast(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let found = parts.feed.last(KV_NODES, &format!("$KV.NODES.{cn}")).await?;
        let every = parts.config.times.heartbeat;
        match seat.judge(found.and_then(decoded), parts.clock.now(), every) {
            Turn::Hold => holds = true,
            Turn::Wait => return Ok(()),
            Turn::Note(noted) => {
                holds = false;
                match parts.feed.beat(cn, encoded(&noted), seat.revision()).await {
                    Ok(revision) => {
                        seat.noted(revision);
                        return Ok(());
                    }
                    Err(FleetError::WrongLast(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Err(FleetError::WrongLast(cn.clone()))
}

fn encoded(node: &Node) -> bytes::Bytes {
    serde_json::to_vec(node).unwrap_or_default().into()
}

/// Reads an entry. One that is none, such as a key's removal, is read as the entry of no node.
fn decoded(stored: Stored) -> Option<(u64, Node)> {
    let of_no_node = |revision| {
        let node = serde_json::json!({"cn_uuid": "", "every_s": 0, "vms": 0,
            "claim": {"instance": "", "machine": "", "version": ""}});
        serde_json::from_value(node).ok().map(|node| (revision, node))
    };
    match serde_json::from_slice(&stored.body) {
        Ok(node) => Some((stored.seq, node)),
        Err(_) => of_no_node(stored.seq),
    }
}

fn entry(parts: &Parts, seat: &Seat, programs: &[Program], needs: &[Need]) -> Node {
    let told = parts.told();
    let mut needs = needs.to_vec();
    if let Some(rival) = seat.rival() {
        let name = rival.hostname.as_deref().unwrap_or("a machine without a name");
        let text = format!(
            "{name} (machine {}) says to be this node too; it publishes nothing",
            rival.machine
        );
        needs.insert(0, Need { program: "fleet-agent".to_owned(), what: What::Claimed, text });
    }
    needs.truncate(MOST);
    Node {
        cn_uuid: parts.cn_uuid.clone(),
        claim: seat.me().clone(),
        rival: seat.rival().cloned(),
        every_s: parts.config.times.heartbeat.as_secs().max(1),
        position: told.position,
        vms: told.vms,
        waits: parts
            .status
            .state(Task::Publisher)
            .filter(|it| *it != State::Resting)
            .map(|it| it.to_string()),
        programs: programs.to_vec(),
        needs,
        left_out: 0,
    }
}

/// Asks the node's programs how they are.
async fn ask(parts: &Parts) -> (Vec<Program>, Vec<Need>) {
    let (mut programs, mut needs) = (Vec::new(), Vec::new());
    let mut take = |name: &str, page: Option<Value>| {
        let (said, wants) = program(name, page.as_ref());
        programs.push(said);
        needs.extend(wants);
    };
    let hub = tokio::time::timeout(PATIENCE, parts.vminfod.full_status()).await;
    take("vminfod", hub.ok().and_then(Result::ok));
    let config = &parts.config;
    for (name, url) in &config.programs {
        take(name, page(url).await);
    }
    (programs, needs)
}

async fn page(url: &str) -> Option<Value> {
    let http = Http::new(url, "fleet-agent").ok()?.without_retries();
    let reply = http.execute(Call::get(&["status"]).timeout(PATIENCE)).await.ok()?;
    reply.json("a status").ok()
}
