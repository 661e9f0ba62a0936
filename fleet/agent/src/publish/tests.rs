// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mocks::hub::Hub;
use proptest::prelude::*;
use sdc_clients::Http;
use sdc_clients::fleet::{CHANGES, Kind, Labels, Node, Position, Stored, VMS, What, subject};
use sdc_clients::vminfod::VmObject;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::config::Config;
use crate::feed::memory::{Fault, Kept, Memory};
use crate::machine::Machine;
use crate::parts::Parts;
use crate::status::{Count, Own, State, Task};
use crate::{beat, publish};

const CN: &str = "564d0b8e-6099-7648-351e-877faf6c56f6";

fn vm(n: u32, alias: &str) -> VmObject {
    let uuid = format!("0b4a4a3e-8b7c-4a09-9c3e-{n:012}");
    let vm = json!({"zonename": uuid, "uuid": uuid, "alias": alias, "state": "running",
        "customer_metadata": {"secret": alias}});
    vm.as_object().unwrap().clone()
}

/// A node, its agents and the feed, under a paused clock.
struct World {
    hub: Hub,
    feed: Arc<Memory>,
    machine: Machine,
    running: Vec<JoinHandle<()>>,
    parts: Arc<Parts>,
}

impl World {
    fn of(feed: Memory, most: usize) -> World {
        let (hub, feed, machine) = (Hub::new(CN, most), Arc::new(feed), Machine::drawn());
        let parts = parts(&hub, &feed, &machine);
        World { hub, feed, machine, running: Vec::new(), parts }
    }

    fn new() -> World {
        let mut world = World::of(Memory::default(), 100);
        world.start();
        world
    }

    fn start(&mut self) {
        self.parts = parts(&self.hub, &self.feed, &self.machine);
        self.running.push(tokio::spawn(beat::run(Arc::clone(&self.parts))));
        self.running.push(tokio::spawn(publish::run(Arc::clone(&self.parts))));
    }

    /// Kills the agent at whatever it awaits.
    fn kill(&mut self) {
        self.running.drain(..).for_each(|task| task.abort());
    }

    /// Until everything that the hub told is published.
    async fn settled(&self) {
        for _ in 0..20_000 {
            sleep(Duration::from_millis(100)).await;
            let (epoch, seq) = self.hub.position();
            if self.parts.told().position == Some(Position { epoch, seq }) {
                return;
            }
        }
        panic!("not settled: {:?} {:?}", self.parts.told(), self.parts.status.to_json());
    }

    fn aliases(&self) -> BTreeMap<String, String> {
        shown(&self.feed)
    }

    fn here(&self) -> BTreeMap<String, String> {
        let pair =
            |(name, vm): (String, VmObject)| (name, vm["alias"].as_str().unwrap().to_owned());
        self.hub.vms().into_iter().map(pair).collect()
    }

    fn kinds(&self) -> Vec<&'static str> {
        let name = |kept: &Kept| kept.stored.labels.as_ref().map_or("odd", |it| it.kind.name());
        self.feed.changes().iter().map(name).collect()
    }

    fn markers(&self) -> usize {
        self.kinds().iter().filter(|kind| **kind == "resync").count()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.kill();
    }
}

fn parts(hub: &Hub, feed: &Arc<Memory>, machine: &Machine) -> Arc<Parts> {
    let config = Config::from_json(
        r#"{"seed": 1, "nats": {"servers": ["nats://127.0.0.1"]}, "programs": {}, "vminfod": {"url": "http://hub",
            "trust_tcp": true}}"#,
    )
    .unwrap();
    let http = Http::with_transport("http://hub", "test", Arc::new(hub.clone())).unwrap();
    Parts::new(config, CN.to_owned(), machine, None, Arc::clone(feed) as _, &http)
}

/// The VMs that the feed shows, by name.
fn shown(feed: &Memory) -> BTreeMap<String, String> {
    let vms = feed.vms();
    let line = |stored: &Stored| serde_json::from_slice::<Value>(&stored.body).unwrap();
    let alive = vms.values().map(line).filter(|line| line["vm"].is_object());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    alive.map(|line| (text(&line["vm"]["zonename"]), text(&line["vm"]["alias"]))).collect()
}

/// Each event of each epoch is in CHANGES once, in order, or a marker stands in the place of those that are not.
fn assert_told(feed: &Memory) {
    let mut last: Option<Position> = None;
    for kept in feed.changes() {
        let labels = kept.stored.labels.unwrap();
        if labels.compared {
            continue;
        }
        if labels.kind != Kind::Resync {
            // Consumers see that a stream was made anew.
            if let Some(last) = last {
                // What the servers lost is told by the message behind it.
                let is_told = labels.after.is_some_and(|after| !last.has(&after));
                assert!(
                    is_told || last.epoch == labels.at.epoch && last.seq + 1 == labels.at.seq,
                    "{last}, {}: a gap, a repetition or another epoch that is not told",
                    labels.at
                );
            }
        }
        last = Some(labels.at);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_is_compared_once_and_followed() {
    let world = World::new();
    world.hub.put(vm(1, "a"));
    world.settled().await;
    world.hub.put(vm(1, "b"));
    world.hub.put(vm(2, "c"));
    world.hub.remove(vm(1, "b")["zonename"].as_str().unwrap());
    world.settled().await;
    assert_eq!(world.aliases(), world.here());
    assert_eq!(world.kinds(), ["create", "resync", "modify", "create", "delete"]);
    assert_told(&world.feed);
    let bodies: String = world
        .feed
        .changes()
        .iter()
        .map(|kept| String::from_utf8_lossy(&kept.stored.body).into_owned())
        .collect();
    assert!(bodies.contains("\"secret\":\"hmac-sha256:"), "{bodies}");
    assert!(!bodies.contains("\"secret\":\"a\""), "{bodies}");
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_publishing_goes_on_behind_the_last_event() {
    // N2
    let mut world = World::new();
    world.hub.put(vm(1, "a"));
    world.settled().await;
    world.kill();
    for alias in ["b", "c", "d"] {
        world.hub.put(vm(1, alias));
    }
    // Longer than JetStream knows the id of a message.
    sleep(Duration::from_secs(600)).await;
    world.start();
    world.settled().await;
    assert_eq!(world.kinds(), ["create", "resync", "modify", "modify", "modify"]);
    assert_told(&world.feed);
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_acknowledgement_was_lost_is_not_published_twice() {
    // N2
    let mut world = World::new();
    world.hub.put(vm(1, "a"));
    world.settled().await;
    for (pause, restarts) in [(1, false), (600, false), (600, true)] {
        let before = world.feed.changes().len();
        world.hub.put(vm(1, &format!("b{pause}{restarts}")));
        // Whichever request is the publish, its answer is lost, and for a while nothing arrives at all.
        world.feed.fault(std::iter::repeat_n(Some(Fault::AnswerLost), 3));
        sleep(Duration::from_secs(1)).await;
        if restarts {
            world.kill();
        }
        world.feed.fault(std::iter::repeat_n(Some(Fault::NotSent), 50));
        sleep(Duration::from_secs(pause)).await;
        world.feed.heal();
        if restarts {
            world.start();
        }
        world.settled().await;
        assert_eq!(world.feed.changes().len(), before + 1, "{pause} {restarts}");
        assert_told(&world.feed);
    }
}

#[tokio::test(start_paused = true)]
async fn what_vminfod_has_forgotten_is_compared_and_the_hole_is_told() {
    // N3
    let mut world = World::new();
    world.hub.put(vm(1, "a"));
    world.hub.put(vm(2, "b"));
    world.settled().await;
    world.kill();
    world.hub.put(vm(1, "c"));
    world.hub.put(vm(1, "a"));
    world.hub.put(vm(3, "d"));
    world.hub.remove(vm(2, "b")["zonename"].as_str().unwrap());
    world.hub.forget();
    world.start();
    world.settled().await;
    assert_eq!(world.aliases(), world.here());
    let new: Vec<_> = world.kinds().split_off(3);
    assert_eq!(new, ["create", "delete", "resync"], "VM 1 is as it was");
    // vminfod starts anew: again a comparison, which finds nothing, and its marker.
    world.hub.restart();
    world.settled().await;
    assert_eq!(world.kinds().split_off(6), ["resync"]);
    assert_told(&world.feed);
}

#[tokio::test(start_paused = true)]
async fn a_comparison_that_was_cut_is_made_again() {
    // N3
    for requests in 1..24 {
        let mut world = World::of(Memory::default(), 100);
        world.hub.put(vm(1, "a"));
        world.hub.put(vm(2, "b"));
        world.feed.fault(std::iter::repeat_n(None, requests).chain([Some(Fault::AnswerLost)]));
        world.start();
        world.settled().await;
        world.kill();
        world.hub.put(vm(2, "c"));
        world.start();
        world.settled().await;
        assert_eq!(world.aliases(), world.here(), "{requests}");
        assert_told(&world.feed);
        let creates = world.kinds().iter().filter(|kind| **kind == "create").count();
        assert_eq!(creates, 2, "{requests}: {:?}", world.kinds());
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_and_restored_streams_are_filled_again() {
    // N11
    let world = World::new();
    for n in 1..5 {
        world.hub.put(vm(n, "a"));
    }
    world.settled().await;
    // CHANGES by hand; VMS with it.
    world.feed.delete(CHANGES);
    sleep(Duration::from_secs(60)).await;
    world.feed.make();
    world.hub.put(vm(1, "b"));
    sleep(Duration::from_secs(900)).await;
    world.settled().await;
    assert_eq!(world.aliases(), world.here(), "CHANGES deleted");
    // VMS alone, when CHANGES has lost the beginning by age.
    world.feed.age_out(3);
    world.feed.delete(VMS);
    world.feed.make();
    sleep(Duration::from_secs(900)).await;
    assert_eq!(world.aliases(), world.here(), "VMS deleted");
    // Yesterday's.
    world.hub.put(vm(2, "c"));
    world.hub.put(vm(3, "c"));
    world.settled().await;
    world.feed.restore_before(2);
    world.hub.put(vm(4, "c"));
    sleep(Duration::from_secs(900)).await;
    world.settled().await;
    assert_eq!(world.aliases(), world.here(), "restored");
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_removed_is_there_again_long_before_the_audit() {
    // N40
    let world = World::new();
    (1..4).for_each(|nth| world.hub.put(vm(nth, "a")));
    world.settled().await;
    world.feed.age_out(usize::MAX);
    world.feed.vms().keys().for_each(|subject| world.feed.lose_shown(subject, None));
    let at = Position { epoch: "operator".into(), seq: 77 };
    let labels = Labels::compared(Kind::Resync, at);
    world.feed.intrude(&subject(CN, None), Some(labels), r#"{"type": "resync"}"#);
    sleep(Duration::from_secs(400)).await;
    assert_eq!(world.aliases(), world.here());
    assert_eq!(world.markers(), 2);
    let all = world.kinds().len();
    sleep(Duration::from_secs(3 * 3600)).await;
    assert_eq!(world.kinds().len(), all, "once");
}

#[tokio::test(start_paused = true)]
async fn what_the_feed_lost_after_it_acknowledged_it_is_found_and_told() {
    // N10
    let world = World::new();
    world.hub.put(vm(1, "a"));
    world.hub.put(vm(2, "b"));
    world.settled().await;
    for alias in ["c", "d"] {
        world.hub.put(vm(1, alias));
        world.settled().await;
    }
    let told = world.markers();
    world.feed.lose(2, 0);
    assert_ne!(world.aliases(), world.here());
    // Two looks; the next audit is later.
    sleep(Duration::from_secs(20 * 60)).await;
    assert_eq!(world.aliases(), world.here());
    assert_eq!(world.markers(), told + 1);
}

#[tokio::test(start_paused = true)]
async fn what_the_feed_lost_before_what_it_kept_is_found_and_told() {
    // N10, N27
    let world = World::new();
    world.hub.put(vm(1, "a"));
    world.hub.put(vm(2, "b"));
    world.settled().await;
    world.hub.put(vm(1, "c"));
    world.hub.put(vm(2, "d"));
    world.settled().await;
    let told = world.markers();
    world.feed.lose(1, 1);
    assert_ne!(world.aliases(), world.here());
    world.hub.put(vm(2, "e"));
    world.settled().await;
    assert_told(&world.feed);
    // Two looks; the next audit is later.
    sleep(Duration::from_secs(20 * 60)).await;
    assert_eq!(world.aliases(), world.here());
    assert_eq!(world.markers(), told + 1);
}

#[tokio::test(start_paused = true)]
async fn what_vms_lost_of_changes_is_found_and_told() {
    // N10
    let world = World::new();
    (1..=3).for_each(|nth| world.hub.put(vm(nth, "a")));
    world.settled().await;
    let own = |nth| subject(CN, vm(nth, "")["uuid"].as_str());
    let before = world.feed.vms()[&own(2)].clone();
    let ghost = world.feed.vms()[&own(3)].clone();
    world.hub.put(vm(2, "b"));
    world.hub.remove(vm(3, "")["zonename"].as_str().unwrap());
    world.settled().await;
    // VMS was seen to have them.
    sleep(Duration::from_secs(20 * 60)).await;
    let told = world.markers();
    world.feed.lose_shown(&own(1), None);
    world.feed.lose_shown(&own(2), Some(before));
    world.feed.lose_shown(&own(3), Some(ghost));
    assert_ne!(world.aliases(), world.here());
    // An audit and two looks.
    sleep(Duration::from_secs(100 * 60)).await;
    assert_eq!(world.aliases(), world.here());
    assert_eq!(world.markers(), told + 1);
    let all = world.kinds().len();
    sleep(Duration::from_secs(3 * 3600)).await;
    assert_eq!(world.kinds().len(), all, "nothing is published again and again");
}

#[tokio::test(start_paused = true)]
async fn what_the_servers_say_to_have_and_have_not_is_published_again() {
    // N28
    let world = World::new();
    world.hub.put(vm(1, "a"));
    world.settled().await;
    let (before, markers) = (world.kinds().len(), world.markers());
    world.feed.fault([Some(Fault::Staged)]);
    world.hub.put(vm(1, "b"));
    world.hub.put(vm(1, "c"));
    // For as long as they know its id they store nothing.
    sleep(Duration::from_secs(60)).await;
    let state = world.parts.status.state(Task::Publisher).unwrap().to_string();
    world.settled().await;
    assert_eq!(world.kinds().split_off(before), ["modify", "modify"], "{state}");
    assert_eq!(world.markers(), markers);
    assert!(state.contains("does not have"), "{state}");
    assert_told(&world.feed);
}

#[tokio::test(start_paused = true)]
async fn a_full_feed_is_waited_for_and_named() {
    // N8
    let world = World::new();
    world.hub.put(vm(1, "a"));
    world.settled().await;
    world.feed.limit(Some(0));
    for n in 0..50 {
        world.hub.put(vm(1, &format!("b{n}")));
    }
    sleep(Duration::from_secs(3600)).await;
    let state = world.parts.status.state(Task::Publisher).unwrap();
    assert!(
        matches!(state, State::Own(Own::Feed(_))) && state.to_string().contains("no room"),
        "{state}"
    );
    world.feed.heal();
    world.settled().await;
    assert_eq!(world.markers(), 1, "the ring had everything");
    assert_told(&world.feed);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_behind_makes_nothing_twice() {
    let mut world = World::new();
    world.hub.put(vm(1, "a"));
    world.settled().await;
    for n in 0..5 {
        world.hub.put(vm(1, &format!("b{n}")));
        world.settled().await;
    }
    let before = world.feed.changes();
    world.kill();
    // Longer than JetStream knows the id of a message. The heartbeat asks first, then for the marker.
    sleep(Duration::from_secs(600)).await;
    world.feed.fault([None, None, None, Some(Fault::Behind)]);
    world.start();
    world.settled().await;
    assert_eq!(world.feed.changes(), before);
}

#[tokio::test(start_paused = true)]
async fn of_two_agents_of_one_node_one_publishes_and_both_are_named() {
    // N6
    let world = World::new();
    world.hub.put(vm(1, "a"));
    world.settled().await;
    let clone = World::of(Memory::default(), 100);
    let other = parts(&clone.hub, &world.feed, &clone.machine);
    clone.hub.put(vm(9, "z"));
    let tasks = [
        tokio::spawn(beat::run(Arc::clone(&other))),
        tokio::spawn(publish::run(Arc::clone(&other))),
    ];
    sleep(Duration::from_secs(120)).await;
    world.hub.put(vm(1, "b"));
    world.settled().await;
    assert_eq!(world.aliases(), world.here());
    assert_eq!(other.status.get(Count::Published) + other.status.get(Count::Differences), 0);
    let entry: Node = serde_json::from_slice(&world.feed.node(CN).unwrap().body).unwrap();
    assert_eq!(entry.claim.machine, world.machine.id.to_string());
    assert_eq!(entry.rival.unwrap().machine, clone.machine.id.to_string());
    assert_eq!(entry.needs[0].what, What::Claimed);
    let said = other.status.state(Task::Heartbeat).unwrap().to_string();
    assert!(said.contains(&world.machine.id.to_string()), "{said}");
    tasks.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn what_another_one_put_in_a_nodes_subject_is_replaced_by_the_audit() {
    // N12
    let world = World::new();
    world.hub.put(vm(1, "a"));
    world.settled().await;
    let subject = format!("vms.{CN}.{}", vm(1, "a")["uuid"].as_str().unwrap());
    world.feed.intrude(&subject, None, "{\"stream\": \"CHANGES\", \"seq\": 3}");
    sleep(Duration::from_secs(2 * 3600)).await;
    assert_eq!(world.aliases(), world.here());
    assert_eq!(world.markers(), 2, "the audit found something, and says so");
    sleep(Duration::from_secs(2 * 3600)).await;
    assert_eq!(world.markers(), 2, "the next one did not");
}

#[tokio::test(start_paused = true)]
async fn a_zone_that_cannot_be_read_stays_on_the_feed() {
    // N7
    let mut world = World::new();
    world.hub.put(vm(1, "a"));
    world.hub.put(vm(2, "b"));
    world.settled().await;
    world.kill();
    let name = vm(2, "b")["zonename"].as_str().unwrap().to_owned();
    world.hub.silently(|vms| drop(vms.remove(&name)));
    world.hub.incomplete(&[&name]);
    world.hub.restart();
    world.start();
    world.settled().await;
    assert!(world.aliases().contains_key(&name));
    world.hub.incomplete(&[]);
    sleep(Duration::from_secs(2 * 3600)).await;
    assert!(!world.aliases().contains_key(&name), "readable, and gone");
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_too_large_is_published_in_part_and_only_once() {
    // N5
    let mut world = World::of(Memory::of_largest(4096), 100);
    world.start();
    world.hub.put(vm(1, &"x".repeat(9000)));
    world.hub.put(vm(2, "b"));
    world.settled().await;
    assert_eq!(world.aliases().len(), 1);
    let before = world.feed.changes().len();
    sleep(Duration::from_secs(3 * 3600)).await;
    assert_eq!(world.feed.changes().len(), before, "no audit finds a difference");
}

#[derive(Clone, Debug)]
enum Step {
    Put(u32, u32),
    Remove(u32),
    Silent(u32),
    Kill,
    Forget,
    Restart,
    Fault(Vec<Option<u8>>),
    Delete(bool),
    AgeOut(usize),
    Lose(usize, usize),
    LoseShown(u32),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let faults = prop::collection::vec(prop::option::weighted(0.5, 0..3u8), 1..12);
    prop_oneof![
        8 => (0..4u32, 0..4u32).prop_map(|(n, alias)| Step::Put(n, alias)),
        3 => (0..4u32).prop_map(Step::Remove),
        1 => (0..4u32).prop_map(Step::Silent),
        3 => Just(Step::Kill),
        1 => Just(Step::Forget),
        1 => Just(Step::Restart),
        4 => faults.prop_map(Step::Fault),
        1 => any::<bool>().prop_map(Step::Delete),
        1 => (1..6usize).prop_map(Step::AgeOut),
        1 => (1..3usize, 0..3usize).prop_map(|(messages, but)| Step::Lose(messages, but)),
        1 => (0..4u32).prop_map(Step::LoseShown),
        4 => prop_oneof![Just(1u64), Just(200), Just(3_000), Just(130_000)].prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// P17: every change reaches the feed once, or a marker stands in its place; at the end the feed shows the node.
    #[test]
    fn nothing_is_lost_untold_and_nothing_comes_twice(steps in prop::collection::vec(step(), 1..40)) {
        // N1
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut world = World::of(Memory::default(), 6);
            world.start();
            for step in steps {
                match step {
                    Step::Put(n, alias) => world.hub.put(vm(n, &alias.to_string())),
                    Step::Remove(n) => world.hub.remove(vm(n, "")["zonename"].as_str().unwrap()),
                    Step::Silent(n) => {
                        world.hub.silently(|vms| {
                            vms.insert(vm(n, "")["zonename"].as_str().unwrap().to_owned(), vm(n, "silent"));
                        });
                        world.hub.restart();
                    }
                    Step::Kill => {
                        world.kill();
                        world.start();
                    }
                    Step::Forget => world.hub.forget(),
                    Step::Restart => world.hub.restart(),
                    Step::Fault(faults) => world.feed.fault(faults.into_iter().map(|fault| {
                        fault.map(|n| [Fault::NotSent, Fault::AnswerLost, Fault::Staged][usize::from(n)])
                    })),
                    Step::Delete(all) => {
                        world.feed.delete(if all { CHANGES } else { VMS });
                        world.feed.make();
                    }
                    Step::AgeOut(messages) => world.feed.age_out(messages),
                    Step::Lose(messages, but) => world.feed.lose(messages, but),
                    Step::LoseShown(n) => {
                        world.feed.lose_shown(&subject(CN, vm(n, "")["uuid"].as_str()), None);
                    }
                    Step::Wait(ms) => sleep(Duration::from_millis(ms)).await,
                }
            }
            world.feed.heal();
            // Longer than audits are apart.
            sleep(Duration::from_secs(2 * 3600)).await;
            world.settled().await;
            assert_eq!(world.aliases(), world.here());
            assert_told(&world.feed);
        });
    }
}
