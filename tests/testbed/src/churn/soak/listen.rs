// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Listeners that connect, read for a while or not at all, disconnect at any moment, and reconnect
//! with or without a snapshot. What they read is checked by the storm, not here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use daemon::Shutdown;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sdc_clients::Http;
use sdc_clients::http::Call;
use tokio::time::{Instant, sleep};

use crate::lines::LineStream;

/// What the listeners did.
#[derive(Debug, Default)]
pub struct Heard {
    /// Connections that were answered.
    pub connections: AtomicUsize,
    /// Of these, those that carried on where they were.
    pub resumed: AtomicUsize,
    /// Connections that failed or were refused (a 410 among them).
    pub refused: AtomicUsize,
    pub lines: AtomicUsize,
}

/// One listener, until the shutdown.
pub async fn come_and_go(http: Http, seed: u64, heard: Arc<Heard>, shutdown: Shutdown) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut at = Place::default();
    while !shutdown.is_triggered() {
        let stay = Duration::from_millis(rng.random_range(50..6_000));
        let visit = visit(&http, &mut at, &mut rng, stay, &heard);
        // A visit that is dropped is a listener that left: nothing of it is needed any more.
        tokio::select! {
            () = visit => {}
            () = shutdown.wait() => return,
        }
        sleep(Duration::from_millis(rng.random_range(0..1_000))).await;
    }
}

/// Where a listener is.
#[derive(Default)]
struct Place {
    epoch: Option<String>,
    seq: u64,
}

async fn visit(http: &Http, at: &mut Place, rng: &mut StdRng, stay: Duration, heard: &Heard) {
    let mut call = Call::get(&["events"]);
    let resumes = at.epoch.is_some() && rng.random_range(0..3_u8) > 0;
    if let (true, Some(epoch)) = (resumes, &at.epoch) {
        call = call.query("epoch", epoch).query("since", at.seq);
    }
    let Ok(mut stream) = LineStream::open(http, call).await else {
        heard.refused.fetch_add(1, Ordering::Relaxed);
        *at = Place::default();
        return;
    };
    heard.connections.fetch_add(1, Ordering::Relaxed);
    heard.resumed.fetch_add(usize::from(resumes), Ordering::Relaxed);
    if rng.random_range(0..5_u8) == 0 {
        // Takes nothing, then leaves.
        return sleep(stay).await;
    }
    let end = Instant::now() + stay;
    while let Ok(Some(line)) = stream.within(end.saturating_duration_since(Instant::now())).await {
        heard.lines.fetch_add(1, Ordering::Relaxed);
        at.seq = line["seq"].as_u64().unwrap_or(at.seq);
        if let Some(epoch) = line["epoch"].as_str() {
            at.epoch = Some(epoch.to_owned());
        }
    }
}
