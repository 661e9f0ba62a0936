// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the two agents of a sync say to each other.

use std::time::Duration;

use tokio::time::timeout;

use crate::failed::Failed;
use crate::parts::Parts;
use crate::peer::Other;
use crate::work::Work;
use crate::zfs::Listed;
use migration_core::protocol::{About, Clear, Datasets, Gone, Received, Whole};
use migration_core::stream::Rate;
use migration_core::sync_plan::{self, Side};

/// The same order may come this much later than the observation that announced it.
const JOINS: Duration = Duration::from_secs(60);
/// The most snapshots with the names of syncs that are reported to the other agent.
const MOST_OTHERS: usize = 1000;

/// One sync: its sender, its receiver and its datasets.
pub struct Sync<'a> {
    pub parts: &'a Parts,
    pub about: About,
    pub work: &'a Work,
    pub other: Other,
    /// The limit of this migration.
    pub rate: Rate,
}

impl Sync<'_> {
    /// What the request names to the other agent: its copy.
    pub fn theirs(&self, revision: u64) -> About {
        // The nonce is that of another revision by now.
        About { end: self.about.end.other(), revision, nonce: None, ..self.about }
    }

    /// Asks the other agent. If it has received a later round, the same order comes with its revision, or another
    /// one ends this.
    pub async fn ask<T, F>(&self, ask: impl Fn(About) -> F) -> Result<T, Failed>
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
    pub async fn there(&self, roots: &[String], from: &Listed) -> Result<Side, Failed> {
        let origins = from.origins.values().cloned().collect();
        let mut there = self.received(roots.to_vec(), origins).await?.side;
        for token in &mut there.tokens {
            token.guid = self.token_guid(&from.side, token).await;
        }
        Ok(there)
    }

    pub async fn received(
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

    pub async fn asked(&self, asked: impl Fn(About) -> Received) -> Result<Datasets, Failed> {
        self.ask(|about| {
            let asked = asked(about);
            async move { self.other.received(&asked).await }
        })
        .await
    }

    /// Tells the other agent that everything of the snapshot is there.
    pub async fn is_whole(&self, number: u32, roots: &[String], from: &Side) -> Result<(), Failed> {
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
    pub async fn token_guid(&self, from: &Side, token: &sync_plan::Token) -> u64 {
        let guid = self.parts.zfs.token_guid(&token.text).await;
        let is_own = |guid: &u64| from.of(&token.dataset).iter().any(|row| row.guid == *guid);
        guid.filter(is_own).unwrap_or(0)
    }

    pub async fn clear(&self, dataset: &str, gone: Gone) -> Result<(), Failed> {
        self.ask(|about| {
            let clear = Clear { about, dataset: dataset.to_owned(), gone: gone.clone() };
            async move { self.other.clear(&clear).await }
        })
        .await
    }
}
