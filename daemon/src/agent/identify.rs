// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The identity task: asks vminfod who the node is.

use std::fmt::Display;
use std::time::Duration;

use sdc_clients::Jitter;
use sdc_clients::vminfod::Vminfod;
use tokio::time::Instant;

use super::census::Census;
use super::claims::Claims;
use super::gate::{Gate, Refusal};
use super::identity::Identity;
use super::status::State;
use crate::config::Window;
use crate::log::chain;
use crate::timing::{HOUR, Retry};

/// The waits while sysinfo does not name this node.
const RETRY: Window = Window { min: Duration::from_secs(1), max: Duration::from_secs(10) };

/// Waits until vminfod says who the node is.
pub async fn find_uuid(vminfod: &Vminfod) -> String {
    let mut retry = Retry::new(RETRY, RETRY.max, Jitter::from_entropy());
    let mut is_logged = false;
    loop {
        match Identity::read(vminfod).await {
            Ok(identity) => return identity.uuid,
            Err(error) if !std::mem::replace(&mut is_logged, true) => {
                tracing::warn!(
                    reason = chain(&error),
                    "waiting for vminfod's sysinfo, which names this node"
                );
            }
            Err(_) => {}
        }
        tokio::time::sleep(retry.next_delay()).await;
    }
}

/// Searches for a second machine. Returns when the next search is due.
async fn search(
    gate: &Gate,
    census: Option<&Census>,
    identity: &Identity,
    resync: Duration,
    jitter: &mut Jitter,
) -> Instant {
    let soon = Instant::now() + resync;
    let Some(census) = census else { return soon };
    match census.second_machine(identity).await {
        Ok(found) => match gate.note_second(found) {
            true => soon,
            false => Instant::now() + jitter.around(HOUR, 0.25),
        },
        // What is known stays.
        Err(error) => {
            tracing::info!(
                reason = chain(&error),
                "cannot check whether a second machine has this node's uuid"
            );
            soon
        }
    }
}

/// Reads sysinfo until it names this node, then every `resync`, in case it changes; for ever. About once an hour it
/// searches for a second machine, and keeps which one an operator has to decide about. `is` shows the state.
pub async fn identify<S: Display>(
    (gate, claims): (&Gate, &Claims),
    vminfod: &Vminfod,
    resync: Duration,
    mut jitter: Jitter,
    census: Option<&Census>,
    is: impl Fn(State<S>),
) {
    let mut retry = Retry::new(RETRY, RETRY.max, jitter.fork());
    // One log line for each change of state, not for each reading.
    let mut logged = None;
    let mut search_due = Instant::now();
    if census.is_none() {
        tracing::warn!(
            "a second machine with this node's uuid is not noticed: no URL of CNAPI and NAPI is configured"
        );
    }
    loop {
        let read = match Identity::read(vminfod).await {
            Ok(identity) => {
                if gate.is_ours(&identity) && Instant::now() >= search_due {
                    // Before it is known who the node is nothing is written.
                    search_due = search(gate, census, &identity, resync, &mut jitter).await;
                }
                gate.identify(identity);
                Ok(())
            }
            Err(error) => Err(error),
        };
        let wrong = match (gate.writable(), read) {
            (Err(Refusal::IdentityUnknown), Err(error)) => Some(State::NoAnswer(chain(&error))),
            (Err(wrong @ (Refusal::WrongIdentity { .. } | Refusal::SecondMachine(_))), _) => {
                Some(State::Refused(wrong))
            }
            // A reading that failed does not make it another node.
            _ => None,
        };
        let why = wrong.as_ref().map(ToString::to_string);
        if let Some(why) = why.as_ref().filter(|_| why != logged) {
            tracing::error!("{why}");
        }
        let is_second = matches!(wrong, Some(State::Refused(Refusal::SecondMachine(_))));
        let wait = match wrong.is_some() && !is_second {
            true => retry.next_delay(),
            false => {
                retry.reset();
                resync
            }
        };
        claims.keep_second(gate);
        is(wrong.unwrap_or(State::Resting));
        logged = why;
        tokio::time::sleep(wait).await;
    }
}
