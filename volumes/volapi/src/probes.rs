// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Storage VMs that run but do not serve. The instance with the lease calls each of them every so often; one that
//! failed twice in a row is silent.
//!
//! Storage VMs are on their owners' networks, to which there may be no way from here: a call that never came
//! through proves nothing about a storage VM, unless it, or another one on one of its networks, has answered once.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;

use crate::nfs::{self, Fault};
use crate::service::{Count, Service};
use crate::updater;
use volumes_core::refused::Refused;
use volumes_core::volume::{State as VolumeState, Volume};

/// A server answers within this time, or does not serve.
const DEADLINE: Duration = Duration::from_secs(5);
/// Calls under way at once.
const AT_ONCE: usize = 256;
/// Failures in a row after which a storage VM is silent.
const FAILURES: u32 = 2;

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The server serves.
    Serves,
    /// A host answers at the address and does not serve.
    Fails(String),
    /// Nothing came through.
    Nothing(String),
}

/// Calls the NFS server at an address.
pub type Ask = Box<dyn Fn(IpAddr) -> BoxFuture<'static, Answer> + Send + Sync>;

/// Returns what calls real servers at this port.
pub fn over_tcp(port: u16) -> Ask {
    Box::new(move |ip| {
        Box::pin(async move {
            let call = nfs::null_call(SocketAddr::new(ip, port));
            match tokio::time::timeout(DEADLINE, call).await {
                Ok(Ok(())) => Answer::Serves,
                Ok(Err(Fault::Connect(error))) if error.kind() != ErrorKind::ConnectionRefused => {
                    Answer::Nothing(format!("no connection: {error}"))
                }
                Ok(Err(fault)) => Answer::Fails(fault.to_string()),
                Err(_) => Answer::Nothing(format!("no answer within {} s", DEADLINE.as_secs())),
            }
        })
    })
}

/// What is known of a storage VM.
#[derive(Clone, Debug, Default)]
struct Health {
    has_served: bool,
    failures: u32,
    /// When the first of these failures was.
    since: Option<Timestamp>,
    why: String,
    /// Whether the failure is the storage VM's own, and not that of the way to it.
    is_its_own: bool,
}

/// A storage VM that runs and does not serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silent {
    /// The storage VM.
    pub vm: String,
    pub since: Timestamp,
    /// What its server answers, or does not.
    pub why: String,
}

/// What is known of all, for people.
#[derive(Debug, Default)]
pub struct State {
    known: Mutex<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    vms: BTreeMap<String, Health>,
    /// The networks on which one has answered.
    networks: BTreeSet<String>,
    /// The end of the last pass.
    last: Option<Timestamp>,
}

impl State {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the storage VMs that run and do not serve.
    pub fn silent(&self) -> Vec<Silent> {
        let calls = self.calls();
        let silent = calls.vms.iter().filter(|(_, known)| known.is_silent());
        silent
            .filter_map(|(vm, known)| {
                let (vm, why) = (vm.clone(), known.why.clone());
                Some(Silent { vm, since: known.since?, why })
            })
            .collect()
    }

    /// Returns how many storage VMs cannot be called from here.
    pub fn out_of_reach(&self) -> usize {
        let is_so = |known: &&Health| known.failures >= FAILURES && !known.is_its_own;
        self.calls().vms.values().filter(is_so).count()
    }

    /// Returns when the last pass over all storage VMs ended.
    pub fn last_pass(&self) -> Option<Timestamp> {
        self.calls().last
    }

    /// Notes what became of the calls of one pass; what was not called is forgotten.
    fn note(&self, pass: Vec<(&Volume, Answer)>, now: Timestamp) {
        let mut calls = self.calls();
        let mut before = std::mem::take(&mut calls.vms);
        for (volume, _) in pass.iter().filter(|(_, answer)| *answer == Answer::Serves) {
            calls.networks.extend(volume.networks().into_iter().map(str::to_owned));
        }
        for (volume, answer) in pass {
            let mut known = before.remove(volume.vm_uuid()).unwrap_or_default();
            let is_near = volume.networks().into_iter().any(|it| calls.networks.contains(it));
            match answer {
                Answer::Serves => known = Health { has_served: true, ..Health::default() },
                Answer::Fails(why) => known.fails(why, true, now),
                Answer::Nothing(why) => {
                    let is_its_own = known.has_served || is_near;
                    known.fails(why, is_its_own, now);
                }
            }
            calls.vms.insert(volume.vm_uuid().to_owned(), known);
        }
        calls.last = Some(now);
    }

    /// Forgets all: another instance calls them.
    fn clear(&self) {
        *self.calls() = Calls::default();
    }
}

impl Health {
    fn fails(&mut self, why: String, is_its_own: bool, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        self.since.get_or_insert(now);
        (self.why, self.is_its_own) = (why, is_its_own);
    }

    fn is_silent(&self) -> bool {
        self.failures >= FAILURES && self.is_its_own
    }
}

/// Calls the storage VMs of one instance.
pub struct Prober {
    /// The service whose volumes they have.
    pub service: Arc<Service>,
    /// Whether this instance has the lease.
    pub updater: Arc<updater::State>,
    /// What it learns.
    pub state: Arc<State>,
    /// How it calls them.
    pub ask: Ask,
    /// The pause between two passes; zero: none are made.
    pub every: Duration,
}

impl Prober {
    /// Works for ever.
    pub async fn run(self) {
        if self.every.is_zero() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(self.every).await;
            // It needs no fence: a call changes nothing, and what is learned is kept in this process only.
            if !self.updater.has_lease() {
                self.state.clear();
                continue;
            }
            if let Err(error) = self.pass().await {
                tracing::warn!(%error, "cannot probe the storage VMs; trying again in the next round");
                self.service.shared.counts.add(Count::Errors);
            }
        }
    }

    /// Calls the storage VMs of all ready volumes once: those first that served last time, so that those
    /// which cannot be reached do not delay the news of one that fell silent.
    async fn pass(&self) -> Result<(), Refused> {
        let stopped = self.service.follower.degraded();
        let ready = [("state", VolumeState::Ready.name())];
        let volumes = self.service.shared.records.volumes_with(&ready).await?;
        let address = |volume: &Volume| volume.filesystem_path()?.split(':').next()?.parse().ok();
        let mut called: Vec<(&Volume, IpAddr)> = volumes
            .iter()
            .map(|volume| &volume.value)
            .filter(|volume| !stopped.iter().any(|vm| vm == volume.vm_uuid()))
            .filter_map(|volume| Some((volume, address(volume)?)))
            .collect();
        let served: BTreeSet<String> = {
            let calls = self.state.calls();
            let well = calls.vms.iter().filter(|(_, known)| known.has_served);
            well.map(|(vm, _)| vm.clone()).collect()
        };
        called.sort_by_key(|(volume, _)| !served.contains(volume.vm_uuid()));
        let calls = called.iter().enumerate().map(|(at, (_, ip))| {
            let call = (self.ask)(*ip);
            async move { (at, call.await) }
        });
        let calls: Vec<_> = calls.collect();
        let mut pass = Vec::new();
        let mut answers = stream::iter(calls).buffer_unordered(AT_ONCE);
        while let Some((at, answer)) = answers.next().await {
            pass.push((called[at].0, answer));
        }
        for (volume, answer) in &pass {
            self.service.shared.counts.add(Count::Calls);
            if let Answer::Fails(why) | Answer::Nothing(why) = answer {
                self.service.shared.counts.add(Count::CallsFailed);
                tracing::debug!(why, vm = volume.vm_uuid(), "no answer from a storage VM");
            }
        }
        self.state.note(pass, daemon::wall::now());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use volumes_core::volume::NewVolume;

    fn volume(vm: &str, network: &str) -> Volume {
        Volume::new(NewVolume {
            uuid: format!("volume-of-{vm}"),
            labels: None,
            name: "n".to_owned(),
            owner_uuid: "o".to_owned(),
            size: 10240.0,
            create_timestamp: 0,
            refs: Vec::new(),
            networks: vec![network.to_owned()],
            vm_uuid: vm.to_owned(),
        })
    }

    fn nothing() -> Answer {
        Answer::Nothing("no answer".to_owned())
    }

    fn fails() -> Answer {
        Answer::Fails("garbage".to_owned())
    }

    /// One pass over these storage VMs and networks at this second.
    fn pass(state: &State, second: i64, answers: &[(&str, &str, Answer)]) {
        let volumes: Vec<Volume> = answers.iter().map(|(vm, net, _)| volume(vm, net)).collect();
        let answers = answers.iter().map(|(_, _, answer)| answer.clone());
        state.note(volumes.iter().zip(answers).collect(), Timestamp::from_second(second).unwrap());
    }

    fn silent(state: &State) -> Vec<(String, i64)> {
        state.silent().into_iter().map(|it| (it.vm, it.since.as_second())).collect()
    }

    #[tokio::test] // V88
    async fn who_refuses_or_babbles_is_there() {
        use tokio::io::AsyncWriteExt as _;

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (ask, here) = (over_tcp(port), IpAddr::from([127, 0, 0, 1]));
        tokio::spawn(async move {
            let (mut peer, _) = listener.accept().await.unwrap();
            peer.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").await.unwrap();
        });
        let asked = ask(here).await;
        assert_eq!(
            asked,
            Answer::Fails("the answer is not an RPC reply: it is too long".to_owned())
        );
        // The listener went away with its task.
        let refused = ask(here).await;
        assert!(matches!(&refused, Answer::Fails(why) if why.contains("refused")), "{refused:?}");
    }

    #[test] // V87
    fn two_failures_in_a_row_are_silence_since_the_first() {
        let state = State::default();
        pass(&state, 10, &[("a", "net", Answer::Serves)]);
        pass(&state, 20, &[("a", "net", nothing())]);
        assert_eq!(silent(&state), []);
        pass(&state, 30, &[("a", "net", fails())]);
        assert_eq!(silent(&state), [("a".to_owned(), 20)]);
        pass(&state, 40, &[("a", "net", nothing())]);
        assert_eq!((silent(&state), state.out_of_reach()), (vec![("a".to_owned(), 20)], 0));
        pass(&state, 50, &[("a", "net", Answer::Serves)]);
        assert_eq!(silent(&state), []);
        // One that is gone is forgotten.
        pass(&state, 60, &[("a", "net", fails())]);
        pass(&state, 70, &[]);
        pass(&state, 80, &[("a", "net", fails())]);
        assert_eq!((silent(&state), state.last_pass().unwrap().as_second()), (vec![], 80));
    }

    #[test] // V88
    fn where_no_way_is_known_nothing_is_said_of_a_storage_vm() {
        let state = State::default();
        let away =
            [("a", "far", nothing()), ("b", "near", nothing()), ("c", "near", Answer::Serves)];
        pass(&state, 10, &away);
        pass(&state, 20, &away);
        // Its neighbour answers: it is its own fault.
        assert_eq!((silent(&state), state.out_of_reach()), (vec![("b".to_owned(), 10)], 1));
        // A host answers at the address and refuses.
        let state = State::default();
        pass(&state, 10, &[("a", "far", fails())]);
        pass(&state, 20, &[("a", "far", fails())]);
        assert_eq!((silent(&state).len(), state.out_of_reach()), (1, 0));
        state.clear();
        assert_eq!((silent(&state), state.last_pass()), (vec![], None));
    }
}
