// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Chaos in simulated time: commands that fail, followers that die, signals late and out of order.

use std::time::Duration;

use mocks::napi::Era;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

use super::steps::{CHANGES, agree, change};
use crate::place::place;
use crate::sim::centre::Centre;
use crate::sim::checks::cache_is_fresh;
use crate::sim::node::{CACHE, Cn};
use crate::sim::runs::alone;
use crate::sim::settle::within;
use crate::sim::signals::Weather;
use crate::sim::steps::command_trouble;
use crate::sim::truth::{Life, Truth};
use crate::sim::world::held;

/// Runs one seed; `done` gets what was done.
pub(super) fn one(seed: u64, lost_events: bool, done: &mut Vec<String>) -> anyhow::Result<()> {
    alone(live(seed, lost_events, done))
}

async fn live(seed: u64, lost_events: bool, done: &mut Vec<String>) -> anyhow::Result<()> {
    let (dir, truth) = (place()?, Truth::default());
    let centre = Centre::new(Era::Master, seed, None, &truth);
    let mut rng = StdRng::seed_from_u64(seed);
    let mut cn = Cn::new(&centre, dir.path(), 0, rng.random_range(3..9))?;
    cn.start_vminfod().await?;
    for _ in 0..rng.random_range(CHANGES) {
        let what = match rng.random_range(0..100_u8) {
            0..4 => {
                cn.cut_source(rng.random());
                "a follower of events dies".to_owned()
            }
            4..8 => {
                cn.honest.files().cut();
                "the file watcher dies".to_owned()
            }
            8..12 => {
                cn.end_vminfod().await;
                // A new start has to get by with commands that fail, but not for ever.
                cn.commands.calm();
                let missed = change(&cn.verbs, &mut rng).await;
                note_deletes(&cn, &truth);
                cn.start_vminfod().await?;
                format!("vminfod restarts, meanwhile {missed:?}")
            }
            12..20 => command_trouble(&cn, &mut rng),
            20..30 => {
                let lost = if lost_events { [0, 50, 100][rng.random_range(0..3)] } else { 0 };
                let late = Duration::from_millis([0, 50, 5_000][rng.random_range(0..3)]);
                let twice = [0, 30][rng.random_range(0..2)];
                cn.way.set(Weather { lost, twice, late, batch: Duration::ZERO });
                format!("of 100 signals {lost} are lost, {twice} come twice, late by {late:?}")
            }
            _ => format!("{:?}", change(&cn.verbs, &mut rng).await),
        };
        done.push(what);
        note_deletes(&cn, &truth);
        cn.watch.poll(&cn.node.root(), &cn.way);
        let pause = [0, 3, 60, 800, 4_000, 25_000, 90_000][rng.random_range(0..7)];
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    cn.calm();
    within(CACHE, "the old daemon", || cache_is_fresh(&cn)).await?;
    let old = cn.shown();
    cn.end_vminfod().await;
    cn.start_vminfod().await?;
    agree(&old, &cn.shown(), &cn.load().await?)?;
    cn.end().await;
    held(&truth)
}

/// A fresh vminfod need not show what the node has no more. Another zone may have the uuid.
fn note_deletes(cn: &Cn, truth: &Truth) {
    let is_there = |vm: &str| cn.node.zone(vm).is_ok_and(|zone| zone.zonename == vm);
    for gone in truth.on(&cn.uuid).into_iter().filter(|vm| !is_there(vm)) {
        truth.set(&gone, Life::Gone(Instant::now(), cn.uuid.clone()));
    }
}
