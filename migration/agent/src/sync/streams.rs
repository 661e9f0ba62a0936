// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The acts of a plan: what is done here, and the streams.

use std::pin::pin;
use std::time::Duration;

use daemon::command::{CommandError, Launch, Pipe, Pipes, Program};
use futures_util::FutureExt as _;
use tokio::time::timeout;

use super::talk::Sync;
use crate::failed::Failed;
use crate::memory::Entry;
use crate::quotas;
use crate::vm::{self, Run};
use crate::wire::Connection;
use crate::zfs::{Listed, args};
use migration_core::protocol::{Accepted, Failure, Gone, Offer};
use migration_core::stream::{self, StreamError, Token};
use migration_core::sync_plan::{Act, Base, Mode};

/// A stream of which nothing moves for so long is given up.
const IDLE: Duration = Duration::from_secs(600);
/// The longest name of a dataset or snapshot.
const LONGEST_NAME: usize = 255;
/// `zfs send` may take so long to end after its pipe was closed.
const ENDS: Duration = Duration::from_secs(5);

impl Sync<'_> {
    pub async fn act(&self, act: &Act, number: u32, from: &Listed) -> Result<(), Failed> {
        let (zfs, referenced) = (&self.parts.zfs, &from.referenced);
        let destroyed = |name: &String| {
            let (dataset, snapshot) = name.split_once('@')?;
            Some((dataset.to_owned(), snapshot.to_owned()))
        };
        match act {
            Act::Snapshot(names) => {
                self.have_room_for(names).await?;
                // What was allowed while the VM ran is older than this snapshot.
                let _turn = self.parts.snapshots.lock().await;
                let vm = self.parts.node.existing(self.about.vm).await?;
                let run = Run::of(&vm);
                let numbers = from.side.numbers();
                let of_root = numbers.get(self.parts.root(self.about.vm).as_str());
                let change = |it: &mut Entry| {
                    it.run = Some(run);
                    it.known.made.retain(|it| of_root.is_some_and(|all| all.contains(it)));
                    it.known.made.insert(number);
                };
                self.parts.memory.change(self.about.migration, change).await?;
                let words = args(&["snapshot", "-r"]).into_iter().chain(names.iter().cloned());
                Ok(zfs.change(words.collect()).await?)
            }
            Act::DropSnapshot(names) => {
                for name in names {
                    zfs.remove(args(&["destroy", name])).await?;
                }
                Ok(())
            }
            Act::DropPartial(dataset) => self.clear(dataset, Gone::Partial).await,
            Act::DestroyDataset(dataset) => self.clear(dataset, Gone::Dataset).await,
            Act::Rename { from, to } => self.clear(from, Gone::Name { to: to.clone() }).await,
            Act::Promote(clone) => self.clear(clone, Gone::Origin).await,
            Act::DestroySnapshots(names) => {
                for (dataset, snapshot) in names.iter().filter_map(destroyed) {
                    self.clear(&dataset, Gone::Snapshots(vec![snapshot])).await?;
                }
                Ok(())
            }
            Act::Send { to, base, mode } => {
                let dataset = to.split('@').next().unwrap_or_default();
                let mut words = match mode {
                    Mode::Replicate => args(&["-R"]),
                    Mode::Props => args(&["-p"]),
                    Mode::Plain => Vec::new(),
                };
                match base {
                    Some(Base::Snapshot(base)) if *mode == Mode::Plain => {
                        words.extend(args(&["-i", base]));
                    }
                    Some(Base::Snapshot(base)) => words.extend(args(&["-I", base])),
                    Some(Base::Bookmark(mark)) => words.extend(args(&["-i", mark])),
                    None => {}
                }
                words.push(to.clone());
                let whole = base.is_none().then(|| referenced.get(dataset).copied()).flatten();
                self.dataset(dataset, words, whole, *mode).await
            }
            // The token does not tell how its stream was made: nothing is reported as missing.
            Act::Resume { dataset, token } => {
                self.dataset(dataset, args(&["-t", token]), None, Mode::Replicate).await
            }
        }
    }

    /// Checks that every dataset can have a snapshot: its name, `@` and the snapshot's must not be too long.
    pub async fn have_room_for(&self, names: &[String]) -> Result<(), Failed> {
        for name in names {
            let (root, snapshot) = name.split_once('@').unwrap_or((name, ""));
            let room = LONGEST_NAME.saturating_sub(snapshot.len() + 1);
            let mut datasets = self.parts.zfs.tree(&["type"], root).await?.into_iter();
            if let Some(row) = datasets.find(|row| row.of.len() > room) {
                return Err(Failed::LongName { dataset: row.of, room });
            }
        }
        Ok(())
    }

    /// Checks that no dataset has a key of its own: its stream would lie on the other node as plain text.
    pub async fn has_no_key_of_its_own(&self, roots: &[String]) -> Result<(), Failed> {
        if !self.parts.zfs.can().await?.encryption {
            return Ok(());
        }
        for root in roots {
            let mut roots = self.parts.zfs.tree(&["encryptionroot"], root).await?.into_iter();
            if let Some(row) = roots.find(|row| vm::is_in(&row.value, root)) {
                return Err(Failed::OwnKey(row.value));
            }
        }
        Ok(())
    }

    /// Adds the size of a stream to what is expected; without an estimate, what is known of it.
    pub async fn expect(&self, words: &[String], whole: Option<u64>) -> Result<(), Failed> {
        let estimate = self.parts.zfs.estimate(words).await?;
        self.work.expect(estimate.or(whole).unwrap_or(0));
        Ok(())
    }

    /// Sends a stream of one of the VM's datasets.
    async fn dataset(
        &self,
        dataset: &str,
        words: Vec<String>,
        whole: Option<u64>,
        mode: Mode,
    ) -> Result<(), Failed> {
        // Neither changes anything.
        let set = quotas::with_quotas(self.parts, self.about.migration, dataset);
        let (set, ()) = tokio::try_join!(set, self.expect(&words, whole))?;
        if mode == Mode::Plain {
            for (of, name) in set.left.iter().filter(|(of, _)| of == dataset) {
                self.work.warn(format!("{name} of {of} is not carried"));
            }
        }
        let properties = set.carried;
        let about = self.theirs(self.about.revision);
        let (dataset, is_bare) = (dataset.to_owned(), mode == Mode::Plain);
        let offer = Offer { about, dataset, image: None, properties, is_bare };
        self.stream(offer, words).await
    }

    pub async fn stream(&self, offer: Offer, words: Vec<String>) -> Result<(), Failed> {
        let dataset = offer.dataset.clone();
        let sent = self.sent(&offer, words).await;
        let Err(Failed::Stream { .. }) = &sent else { return sent };
        // The receiver knows more.
        let failed = self.received(Vec::new(), Vec::new()).await.ok().and_then(|it| it.failed);
        match failed {
            Some(failure) => {
                let error = format!("{dataset}: {}", failure.error);
                Err(Failed::Other(Failure { error, ..failure }))
            }
            None => sent,
        }
    }

    async fn sent(&self, offer: &Offer, words: Vec<String>) -> Result<(), Failed> {
        let (dataset, streams) = (offer.dataset.clone(), &self.parts.streams);
        let Accepted { address, token } = self
            .ask(|about| {
                let offer = Offer { about, ..offer.clone() };
                async move { self.other.offer(&offer).await }
            })
            .await?;
        let token = Token::read(&token)?;
        let dialed = streams.wire.dial(&address, self.other.cn).await;
        let connection = dialed.map_err(|source| Failed::Unreached { address, source })?;
        let words = args(&["send"]).into_iter().chain(words).collect();
        let cannot = |source: CommandError| Failed::Command {
            verb: "send",
            dataset: dataset.clone(),
            message: source.to_string(),
        };
        let started = self.parts.commands.start(Launch::new(Program::Zfs, words, Pipes::Out));
        let (_, stdout, ended) = started.map_err(cannot)?.split();
        let ended = ended.boxed().shared();
        let failed = |source| Failed::Stream { dataset: dataset.clone(), source };
        let done = self.carried(stdout, ended.clone(), connection, &token).await;
        if done.is_err() {
            // Its pipe is closed, and it ends by itself: one that is killed leaves its snapshots held (zfs-fuse).
            let _killed_now = timeout(ENDS, ended).await;
        }
        done.map_err(|stopped| stopped.map_or(Failed::Cancelled, failed))
    }

    /// Carries a stream to the other node; the error is none where a later order replaced this one.
    async fn carried(
        &self,
        stdout: Pipe,
        ended: impl Future<Output = Result<(), String>>,
        connection: Connection,
        token: &Token,
    ) -> Result<(), Option<StreamError>> {
        let streams = &self.parts.streams;
        let all = (&self.rate, &self.work.meter, &streams.refusals);
        let ended = ended.map(|ended| ended.map_err(std::io::Error::other));
        let mut sending = pin!(stream::send(stdout, ended, connection, token, all));
        let mut before = self.work.meter.bytes();
        loop {
            // All arms are cancel-safe: the stream stays here, the others only observe.
            tokio::select! {
                sent = &mut sending => return sent.map(drop).map_err(Some),
                () = self.work.cancelled() => return Err(None),
                () = tokio::time::sleep(IDLE) => {
                    let now = self.work.meter.bytes();
                    if now == before {
                        return Err(Some(StreamError::Idle(IDLE)));
                    }
                    before = now;
                }
            }
        }
    }
}
