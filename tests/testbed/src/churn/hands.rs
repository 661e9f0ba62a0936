// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Hands that change a node, several at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use rand::SeedableRng;
use rand::rngs::StdRng;
use simnode::NodeError;
use tokio::task::JoinSet;
use tokio::time::interval;

/// So many changes in a row may be refused to one hand.
const REFUSED: usize = 1000;

/// What a hand does again and again. A VM's state may forbid it, or another hand may be faster.
pub trait Change: Clone + Send + 'static {
    fn once(&self, rng: &mut StdRng) -> impl Future<Output = Result<(), NodeError>> + Send;
}

/// What the hands did.
#[derive(Debug, Default)]
pub struct Done {
    pub changes: AtomicUsize,
    pub refused: AtomicUsize,
}

/// So many hands.
#[derive(Clone)]
pub struct Hands {
    pub count: usize,
    pub seed: u64,
    /// Changes a second, all hands together; without it each goes on at once.
    pub per_second: Option<f64>,
    /// They end after so many changes.
    pub wanted: usize,
    pub done: Arc<Done>,
}

impl Hands {
    /// Changes things until all is done.
    pub async fn work(self, change: impl Change) -> anyhow::Result<()> {
        let mut hands = JoinSet::new();
        for hand in 0..self.count {
            let rng = StdRng::seed_from_u64(self.seed.wrapping_add(hand as u64));
            hands.spawn(self.clone().hand(change.clone(), rng));
        }
        while let Some(ended) = hands.join_next().await {
            ended.context("a hand")?.context("the node cannot be changed")?;
        }
        Ok(())
    }

    async fn hand(self, change: impl Change, mut rng: StdRng) -> Result<(), NodeError> {
        let every = |rate| interval(Duration::from_secs_f64(self.count as f64 / rate));
        let (mut pace, mut refused) = (self.per_second.map(every), 0);
        while self.done.changes.load(Ordering::Relaxed) < self.wanted {
            if let Some(pace) = &mut pace {
                pace.tick().await;
            }
            match change.once(&mut rng).await {
                Ok(()) => {
                    refused = 0;
                    self.done.changes.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) if refused < REFUSED => {
                    refused += 1;
                    self.done.refused.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
