// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The only module that writes to NAPI. Each write: read the record again, ask the pure rules
//! about that copy, take a turn, look once more at node, holds and identity, then one request
//! with `If-Match`. An outcome that is not known is read, never resent.

use std::sync::Arc;
use std::time::Duration;

use sdc_clients::http::Versioned;
use sdc_clients::napi::{Napi, Nic};
use sdc_clients::vmapi::Vmapi;
use sdc_clients::vminfod::Vminfod;
use sdc_clients::{Class, Error, MacAddr};

use crate::pace::Pace;
use crate::plan::evidence::Guard;
use crate::plan::verdict::Verdict;
use crate::shared::Shared;
use crate::status::Count;

mod delete;
mod upkeep;

/// Rounds of read, decide, write before a record is left to the next pass.
const ROUNDS: u32 = 5;

/// How one record came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Written or deleted, or already as it should be.
    Done,
    /// Left alone for good reason.
    Left(String),
    /// NAPI has no record of it: left alone.
    Missing,
    /// Not now: something has to change first.
    Deferred(String),
    /// Not now: VMAPI knows the VM, and has not called it destroyed yet.
    Undecided(String),
    /// Not now: the mass-change brake keeps it (G10).
    Braked(String),
    /// A request failed: try again.
    Failed(String),
}

impl Outcome {
    /// Is there something left to be done?
    pub fn is_open(&self) -> bool {
        !matches!(self, Self::Done | Self::Left(_) | Self::Missing)
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Left(why) => write!(f, "left alone: {why}"),
            Self::Missing => f.write_str("left alone: NAPI has no record of it"),
            Self::Deferred(why) | Self::Undecided(why) => write!(f, "put off: {why}"),
            Self::Braked(why) => write!(f, "put off: {}: {why}", Guard::G10),
            Self::Failed(why) => write!(f, "failed, to be tried again: {why}"),
        }
    }
}

/// The clients of one agent.
#[derive(Clone)]
pub struct Clients {
    /// NAPI, every request paced.
    pub napi: Napi,
    /// NAPI for writes, whose turn is taken by hand.
    pub napi_writes: Napi,
    /// VMAPI, paced; none when the operator chose so.
    pub vmapi: Option<Vmapi>,
    /// vminfod.
    pub vminfod: Vminfod,
    /// The budget.
    pub pace: Arc<Pace>,
}

/// The writer.
#[derive(Clone)]
pub struct Apply {
    shared: Arc<Shared>,
    clients: Clients,
}

pub(crate) enum Fresh {
    Record(Box<Versioned<Nic>>),
    Missing,
}

impl Apply {
    /// A writer over these clients.
    pub fn new(shared: Arc<Shared>, clients: Clients) -> Self {
        Self { shared, clients }
    }

    /// VMAPI's verdict; never with `sync=true`, which could itself mark VMs destroyed.
    pub async fn ask(&self, vm: &str) -> Verdict {
        let Some(vmapi) = &self.clients.vmapi else {
            return Verdict::NoAnswer("no VMAPI is configured".to_owned());
        };
        match vmapi.get_vm(vm).await {
            Ok(found) if found.uuid == vm => {
                let macs = found.other.get("nics").and_then(|nics| nics.as_array()).map(|nics| {
                    nics.iter()
                        .filter_map(|nic| nic.get("mac").and_then(|mac| mac.as_str())?.parse().ok())
                        .collect()
                });
                Verdict::of(&found.state, found.server_uuid.as_deref(), macs)
            }
            Ok(found) => Verdict::NoAnswer(format!("it answered about {}", found.uuid)),
            // Any web server says 404; only VMAPI says it in these words.
            Err(err) if err.is_not_found_resource() && err.code() == Some("ResourceNotFound") => {
                Verdict::Unknown
            }
            Err(err) => {
                let text = daemon::log::chain(&err);
                self.shared.status.failed(text.clone());
                Verdict::NoAnswer(text)
            }
        }
    }

    /// None when the answer means "read again".
    fn conflict(&self, err: &Error) -> Option<Outcome> {
        if err.is_precondition_failed() || err.may_have_applied() {
            self.shared.status.count(Count::Conflicts);
            return None;
        }
        // Refused for the moment, and certainly not done.
        if matches!(err.class(), Class::Connect | Class::Unavailable | Class::Timeout(_)) {
            self.shared.status.failed(daemon::log::chain(err));
            return None;
        }
        let text = daemon::log::chain(err);
        self.shared.status.failed(text.clone());
        // NAPI will not have it: sent again, it would be refused again.
        let refused = matches!(err.status(), Some(400..=407 | 410..=411 | 413..=424));
        Some(if refused { Outcome::Left(text) } else { Outcome::Failed(text) })
    }

    pub(crate) async fn read(&self, mac: MacAddr) -> Result<Fresh, Outcome> {
        match self.clients.napi.get_nic(mac).await {
            Ok(fresh) if fresh.value.mac == mac => Ok(Fresh::Record(Box::new(fresh))),
            Ok(fresh) => Err(Outcome::Failed(format!("asked for {mac}, got {}", fresh.value.mac))),
            Err(err) if err.is_not_found_resource() => Ok(Fresh::Missing),
            Err(err) => {
                let text = daemon::log::chain(&err);
                self.shared.status.failed(text.clone());
                Err(Outcome::Failed(text))
            }
        }
    }

    async fn pause(&self, round: u32) {
        let window = self.shared.config.conflict_retry;
        let most = window.min.saturating_mul(1 << round.min(16)).min(window.max);
        let wait = self.shared.draw(|jitter| jitter.uniform(most / 2, most));
        tokio::time::sleep(wait.max(Duration::from_millis(1))).await;
    }

    fn left(&self, mac: MacAddr, vm: &str, why: &str) -> Outcome {
        self.shared.status.count(Count::Skipped);
        tracing::info!(%mac, vm, reason = why, "left alone");
        Outcome::Left(why.to_owned())
    }

    fn deferred(&self, mac: MacAddr, vm: &str, why: &str) -> Outcome {
        self.shared.status.count(Count::Deferred);
        tracing::info!(%mac, vm, reason = why, "deferred");
        Outcome::Deferred(why.to_owned())
    }

    fn muted(&self, mac: MacAddr, vm: &str, why: &str, what: &str) -> Outcome {
        if self.shared.config.mode == crate::config::Mode::Report {
            self.shared.status.count(Count::Reported);
            tracing::info!(%mac, vm, action = what, reason = why, "would write");
            return Outcome::Left(why.to_owned());
        }
        self.deferred(mac, vm, why)
    }
}

/// One line per write, for the record: whatever the log's level is (`daemon::log::AUDIT`).
fn audit(
    mac: MacAddr,
    vm: &str,
    rule: &str,
    etag: Option<&str>,
    outcome: &str,
    request: &str,
    why: &str,
) {
    tracing::info!(target: daemon::log::AUDIT, audit = true, %mac, vm, rule, etag = etag.unwrap_or(""), outcome, request, why, "write");
}
