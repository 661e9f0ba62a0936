// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The sender's end of a sync: plans, takes the snapshot, and sends what the other node lacks.
//!
//! A stream can be cut at any byte, and either agent can die. So nothing of a plan is kept: after each step it is made
//! again from what both nodes show, and a sync is over when nothing is left to do.

use std::pin::pin;
use std::time::Duration;

use daemon::command::{CommandError, Launch, Pipe, Pipes, Program};
use futures_util::FutureExt as _;
use tokio::time::timeout;
use uuid::Uuid;

use super::failed::Failed;
use super::memory::Entry;
use super::parts::Parts;
use super::peer::Other;
use super::quotas;
use super::vm::{self, Run};
use super::wire::Connection;
use super::work::Work;
use super::zfs::{Cause, Listed, args};
use migration_core::intent::End;
use migration_core::protocol::{
    About, Accepted, Clear, Datasets, Failure, Gone, Offer, Properties, Received, Whole,
};
use migration_core::stream::{self, Rate, StreamError, Token};
use migration_core::sync_plan::{self, Act, Base, Capabilities, Mode, Sent, Side};

/// The same order may come this much later than the observation that announced it.
const JOINS: Duration = Duration::from_secs(60);
/// A stream of which nothing moves for so long is given up.
const IDLE: Duration = Duration::from_secs(600);
/// The longest name of a dataset or snapshot.
const LONGEST_NAME: usize = 255;
/// The most snapshots with the names of syncs that are reported to the other agent.
const MOST_OTHERS: usize = 1000;
/// `zfs send` may take so long to end after its pipe was closed.
const ENDS: Duration = Duration::from_secs(5);

/// One sync: its sender, its receiver and its datasets.
struct Sync<'a> {
    parts: &'a Parts,
    about: About,
    work: &'a Work,
    other: Other,
    /// The limit of this migration.
    rate: Rate,
}

/// Returns the datasets of a VM that are sent.
pub async fn sent(parts: &Parts, vm: &sdc_clients::vminfod::VmObject) -> Result<Vec<Sent>, Failed> {
    let mut vm = vm::to_sync(vm).ok_or(Failed::NoDataset)?;
    if vm.is_docker {
        let shared = format!("{}/volumes", vm.zfs_filesystem);
        vm.has_shared_volumes = !parts.zfs.each("type", &[shared]).await?.is_empty();
    }
    Ok(sync_plan::sent(&vm))
}

/// Takes the snapshot of this number where it is missing, and brings the other copy to it.
/// Fails with [`Failed`]; what was received in part stays for the next try.
pub async fn send(
    parts: &Parts,
    about: &About,
    work: &Work,
    number: u32,
    (to, mbps): (Uuid, Option<u32>),
) -> Result<(), Failed> {
    let other = parts.peers.to(to);
    let sync =
        Sync { parts, about: *about, work, other, rate: Rate::within(&parts.streams.rate, mbps) };
    let id = about.vm;
    let vm = parts.node.existing(about.vm).await?;
    let sent = sent(parts, &vm).await?;
    let roots: Vec<String> = sent.iter().map(|it| it.dataset.clone()).collect();
    for root in &roots {
        quotas::lift_tight(parts, about.migration, root).await?;
    }
    let can = parts.zfs.can().await?;
    let mut can = Capabilities { resume: can.resume, bookmarks: can.bookmarks, packages: true };
    let mut last = Vec::new();
    let mut from = parts.list(id, &roots, &[]).await?;
    let mut to = sync.there(&roots, &from).await?;
    loop {
        // What the source has is never replaced.
        let may_restart = about.end == End::Source;
        let acts = sync_plan::plan(&sent, &from.side, &to, number, can, may_restart)?;
        if acts.is_empty() {
            return sync.is_whole(number, &roots, &from.side).await;
        }
        if acts == last {
            return Err(Failed::Stuck);
        }
        for act in &acts {
            match sync.act(act, number, &from).await {
                // The plan is made again, for streams that do not need what is refused.
                Err(Failed::Zfs(error)) if error.cause() == Cause::Encrypted && can.packages => {
                    sync.has_no_key_of_its_own(&roots).await?;
                    can.packages = false;
                    break;
                }
                done => done?,
            }
        }
        // A stream may take hours, in which both sides change.
        if acts.iter().any(Act::changes_sender) {
            from = parts.list(id, &roots, &[]).await?;
        }
        // The meaning of a token depends on the sender's snapshots.
        if acts.iter().any(Act::changes_receiver) || !to.tokens.is_empty() {
            to = sync.there(&roots, &from).await?;
        }
        last = acts;
    }
}

/// Sends the snapshot of an image that the other node lacks.
pub async fn send_image(
    parts: &Parts,
    about: &About,
    work: &Work,
    image: Uuid,
    to: Uuid,
) -> Result<(), Failed> {
    let other = parts.peers.to(to);
    let sync =
        Sync { parts, about: *about, work, other, rate: Rate::within(&parts.streams.rate, None) };
    let dataset = format!("{}/{image}", parts.zfs.pool());
    let snapshot = format!("{dataset}@final");
    let there = sync.received(Vec::new(), vec![snapshot.clone()]).await?;
    let guid = parts.zfs.each("guid", std::slice::from_ref(&snapshot)).await?.remove(&snapshot);
    let guid = guid.and_then(|guid| guid.parse().ok());
    let guid = guid.ok_or_else(|| sync_plan::Refusal::Missing(snapshot.clone()))?;
    if there.side.has(guid) {
        return Ok(());
    }
    let offer = Offer {
        about: sync.theirs(about.revision),
        dataset,
        image: Some(image),
        properties: Properties::new(),
        is_bare: false,
    };
    let words = args(&["-p", &snapshot]);
    sync.expect(&words, None).await?;
    sync.stream(offer, words).await
}

impl Sync<'_> {
    /// What the request names to the other agent: its copy.
    fn theirs(&self, revision: u64) -> About {
        // The nonce is that of another revision by now.
        About { end: self.about.end.other(), revision, nonce: None, ..self.about }
    }

    /// Asks the other agent. If it has received a later round, the same order comes with its revision, or another
    /// one ends this.
    async fn ask<T, F>(&self, ask: impl Fn(About) -> F) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, sdc_clients::Error>>,
    {
        let mut revisions = self.work.revisions();
        loop {
            if self.work.is_cancelled() {
                return Err(Failed::Cancelled);
            }
            let revision = *revisions.borrow_and_update();
            let error = match ask(self.theirs(revision)).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let is_old = error.code() == Some("OldOrder");
            let joined = is_old && matches!(timeout(JOINS, revisions.changed()).await, Ok(Ok(())));
            if !joined {
                return Err(Failed::Peer(error));
            }
        }
    }

    /// Returns what the other node has of these datasets, and of the snapshots that the sender's are clones of.
    async fn there(&self, roots: &[String], from: &Listed) -> Result<Side, Failed> {
        let origins = from.origins.values().cloned().collect();
        let mut there = self.received(roots.to_vec(), origins).await?.side;
        for token in &mut there.tokens {
            token.guid = self.token_guid(&from.side, token).await;
        }
        Ok(there)
    }

    async fn received(
        &self,
        datasets: Vec<String>,
        origins: Vec<String>,
    ) -> Result<Datasets, Failed> {
        let asked = |about| Received {
            about,
            datasets: datasets.clone(),
            origins: origins.clone(),
            whole: None,
        };
        self.asked(asked).await
    }

    async fn asked(&self, asked: impl Fn(About) -> Received) -> Result<Datasets, Failed> {
        self.ask(|about| {
            let asked = asked(about);
            async move { self.other.received(&asked).await }
        })
        .await
    }

    /// Tells the other agent that everything of the snapshot is there.
    async fn is_whole(&self, number: u32, roots: &[String], from: &Side) -> Result<(), Failed> {
        let root = self.parts.root(self.about.vm);
        let whole = Whole { number, others: from.others_named_so(&root, MOST_OTHERS) };
        let asked = |about| Received {
            about,
            datasets: roots.to_vec(),
            origins: Vec::new(),
            whole: Some(whole.clone()),
        };
        self.asked(asked).await.map(drop)
    }

    /// Returns the GUID of the snapshot that a token stands for; 0 if `zfs` cannot go on with it, or if it is not one
    /// of this dataset: the receiver reports the token, and must not choose what is sent.
    async fn token_guid(&self, from: &Side, token: &sync_plan::Token) -> u64 {
        let guid = self.parts.zfs.token_guid(&token.text).await;
        let is_own = |guid: &u64| from.of(&token.dataset).iter().any(|row| row.guid == *guid);
        guid.filter(is_own).unwrap_or(0)
    }

    async fn act(&self, act: &Act, number: u32, from: &Listed) -> Result<(), Failed> {
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
    async fn have_room_for(&self, names: &[String]) -> Result<(), Failed> {
        for name in names {
            let (root, snapshot) = name.split_once('@').unwrap_or((name, ""));
            let room = LONGEST_NAME.saturating_sub(snapshot.len() + 1);
            let rows = self.parts.zfs.get(&["type"], &[root.to_owned()], true).await?;
            let mut datasets = rows.into_iter().filter(|row| !row.of.contains(['@', '#']));
            if let Some(row) = datasets.find(|row| row.of.len() > room) {
                return Err(Failed::LongName { dataset: row.of, room });
            }
        }
        Ok(())
    }

    /// Checks that no dataset has a key of its own: its stream would lie on the other node as plain text.
    async fn has_no_key_of_its_own(&self, roots: &[String]) -> Result<(), Failed> {
        if !self.parts.zfs.can().await?.encryption {
            return Ok(());
        }
        for root in roots {
            let rows = self.parts.zfs.get(&["encryptionroot"], std::slice::from_ref(root), true);
            let mut own = rows.await?.into_iter().filter(|row| vm::is_in(&row.value, root));
            if let Some(row) = own.next() {
                return Err(Failed::OwnKey(row.value));
            }
        }
        Ok(())
    }

    async fn clear(&self, dataset: &str, gone: Gone) -> Result<(), Failed> {
        self.ask(|about| {
            let clear = Clear { about, dataset: dataset.to_owned(), gone: gone.clone() };
            async move { self.other.clear(&clear).await }
        })
        .await
    }

    /// Adds the size of a stream to what is expected; without an estimate, what is known of it.
    async fn expect(&self, words: &[String], whole: Option<u64>) -> Result<(), Failed> {
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

    async fn stream(&self, offer: Offer, words: Vec<String>) -> Result<(), Failed> {
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
