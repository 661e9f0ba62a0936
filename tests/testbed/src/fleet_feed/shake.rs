// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Changes VMs, and kills or stops what runs.

use std::fmt;
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use rustix::process::Signal;
use sdc_clients::fleet::{Fleet, Health};
use tokio::time::{Instant, sleep, timeout};

use super::centre::vm;
use super::options::Options;
use super::progress::Progress;
use super::site::{MIRRORS, SERVERS, Site, kill};

/// What was done to the processes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Deaths {
    /// Servers, processes of agents and consumers that got kill -9.
    pub killed: [usize; 3],
    /// Servers and consumers that stood still for a while.
    pub stopped: [usize; 2],
}

impl fmt::Display for Deaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Deaths { killed: [servers, agents, mirrors], stopped: [slow, deaf] } = self;
        write!(
            f,
            "killed {servers} servers, {agents} processes of agents, {mirrors} consumers; stopped {slow} servers and \
             {deaf} consumers for a while"
        )
    }
}

/// What comes back, and when.
enum Back {
    Killed(usize),
    Stopped(usize),
}

impl Back {
    fn restore(self, site: &Site) -> anyhow::Result<()> {
        match self {
            Back::Killed(nth) => site.nats.run(nth)?,
            Back::Stopped(nth) => site.nats.signal(nth, Signal::CONT),
        }
        Ok(())
    }
}

/// Changes VMs and kills what runs, for so many seconds; at the end everything runs again.
pub(super) async fn shake(
    site: &mut Site,
    fleet: &Fleet,
    options: &Options,
    mut dice: StdRng,
    progress: &mut Progress,
) -> anyhow::Result<Deaths> {
    let mut deaths = Deaths::default();
    let names: Vec<String> = site.hubs.keys().cloned().collect();
    let (mut turn, mut down): (u64, Option<(Back, Instant)>) = (0, None);
    let mut deaf: Option<(usize, Instant)> = None;
    let until = Instant::now() + Duration::from_secs(options.seconds);
    let mut death = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        for _ in 0..dice.random_range(1..8) {
            turn += 1;
            let cn = &names[dice.random_range(0..names.len())];
            let (hub, nth) = (&site.hubs[cn], dice.random_range(0..options.vms));
            match dice.random_range(0..200) {
                0 => hub.restart(),
                1 => hub.forget(),
                2..30 => hub.remove(vm(cn, nth, 0)["zonename"].as_str().unwrap_or_default()),
                _ => hub.put(vm(cn, nth, turn)),
            }
        }
        if let Some((back, _)) = down.take_if(|(_, at)| Instant::now() > *at) {
            back.restore(site)?;
        }
        if let Some((nth, _)) = deaf.take_if(|(_, at)| Instant::now() > *at) {
            site.signal_mirror(nth, Signal::CONT);
        }
        if Instant::now() > death {
            death = Instant::now() + Duration::from_millis(dice.random_range(500..3000));
            let mut after =
                |most| Instant::now() + Duration::from_millis(dice.random_range(0..most));
            let (soon, later) = (after(4000), after(12_000));
            match dice.random_range(0..5) {
                // While one is behind, another death would leave no majority that has everything.
                what @ (0 | 1) if down.is_none() && is_whole(fleet).await => {
                    let nth = dice.random_range(0..SERVERS);
                    down = Some(match what {
                        0 => {
                            site.nats.kill(nth);
                            deaths.killed[0] += 1;
                            (Back::Killed(nth), soon)
                        }
                        _ => {
                            site.nats.signal(nth, Signal::STOP);
                            deaths.stopped[0] += 1;
                            (Back::Stopped(nth), later)
                        }
                    });
                }
                2 => {
                    let nth = dice.random_range(0..site.agents.len());
                    kill(&mut site.agents[nth]).await;
                    deaths.killed[1] += 1;
                    site.start_agents(nth)?;
                }
                3 if deaf.is_none() => {
                    let nth = dice.random_range(0..MIRRORS);
                    site.signal_mirror(nth, Signal::STOP);
                    deaths.stopped[1] += 1;
                    deaf = Some((nth, later));
                }
                _ => {
                    let nth = dice.random_range(0..MIRRORS);
                    deaf.take_if(|(stopped, _)| *stopped == nth);
                    kill(&mut site.mirrors[nth]).await;
                    deaths.killed[2] += 1;
                    site.start_mirror(nth)?;
                }
            }
        }
        if progress.is_due() {
            let has = timeout(Duration::from_secs(2), fleet.health()).await.ok();
            let has = has.and_then(Result::ok).and_then(|all| Some(all.first()?.messages));
            let has = has.map_or("–".to_owned(), |count| count.to_string());
            progress.say(|| format!("{turn} changes, CHANGES has {has} messages; {deaths}"));
        }
        sleep(Duration::from_millis(dice.random_range(5..40))).await;
    }
    if let Some((back, _)) = down {
        back.restore(site)?;
    }
    if let Some((nth, _)) = deaf {
        site.signal_mirror(nth, Signal::CONT);
    }
    Ok(deaths)
}

/// Whether every server has all of every stream.
async fn is_whole(fleet: &Fleet) -> bool {
    let health = timeout(Duration::from_secs(2), fleet.health()).await;
    health.is_ok_and(|all| all.is_ok_and(|all| all.iter().all(Health::is_whole)))
}
