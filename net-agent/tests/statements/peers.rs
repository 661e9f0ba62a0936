// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the real NAPI does, and hostile ones: records that cannot be read, a filter that is ignored,
//! silence and outages, clocks that are wrong.

use mocks::faults::{Action, Rule};
use mocks::napi::Era;
use net_agent::status::Count;
use serde_json::json;
use tokio::time::sleep;

use crate::world::{CN, Outage, TARGET, World, mac, mac_of};
use crate::{HOUR, MIN, SEC, lawful, leak, leak_in};

#[tokio::test(start_paused = true)] // F74, S31, S32
async fn one_odd_record_does_not_void_the_list() {
    let world = leak();
    world.nic(3, "live", json!({"cn_uuid": [CN]}));
    world.nic(4, "gone", json!({"cn_uuid": [CN.to_uppercase()]}));
    world.nic(5, "gone", json!({"cn_uuid": CN.to_uppercase()}));
    world.nic(6, "gone", json!({"cn_uuid": [CN, TARGET]}));
    let mut odd = world.napi.nic(&mac(2)).unwrap();
    odd["mac"] = json!("f2:00:00");
    let rule = Rule::new("GET", "/nics", Action::ForeignRecord { record: Some(odd) });
    world.napi.faults().add(Rule { query: Some("limit=1000".to_owned()), ..rule });
    world.vm("live", "running", &[1, 3], false);
    let (agent, _) = world.start(json!({}));
    sleep(HOUR).await;
    assert_eq!([2, 4, 5].map(|n| world.has(n)), [false; 3], "{:?}", world.writes());
    assert!(world.has(1) && world.has(3) && world.has(6));
    let status = agent.status_json().await;
    assert_eq!(status["unreadable"], 2, "{status}");
    let first = status["unreadable_nics"].to_string();
    assert!(first.contains(&mac(6)) && first.contains("not a MAC address"), "{first}");
    assert!(world.writes().iter().all(|line| line.starts_with("DELETE")), "{:?}", world.writes());
    lawful(&world);
}

#[tokio::test(start_paused = true)] // F74, S33
async fn reads_the_list_around_a_record_of_a_lost_network() {
    let world = leak();
    for n in 3..40 {
        world.nic(n, "live", json!({}));
    }
    world.vm("live", "running", &(3..40).chain([1]).collect::<Vec<u8>>(), false);
    assert!(world.napi.lose_network(&mac(17)));
    let (agent, _) = world.start(json!({}));
    sleep(20 * MIN).await;
    assert!(!world.has(2), "{:?}", agent.status_json().await);
    assert_eq!(agent.parts.status.get(Count::Unreadable), 1);
    assert_eq!(agent.parts.status.get(Count::Listed), 38);
    lawful(&world);
}

#[tokio::test(start_paused = true)] // F75, race 26
async fn ignored_filter_costs_one_page_in_hours() {
    let world = leak();
    for n in 3..4000 {
        world.nic_at(&mac_of(n), "elsewhere", json!({"cn_uuid": TARGET}));
    }
    // The route exists and ignores the filter.
    world.napi.set_era(Era::Rfd58);
    let mut page = world.napi.nics();
    page.truncate(1000);
    let body = Some(json!(page));
    let ignores = Action::Status { status: 200, body, retry_after: None };
    world.napi.faults().add(Rule::new("GET", "/search/nics", ignores));
    let (agent, _) = world.start(json!({}));
    sleep(2 * HOUR).await;
    let lists = || world.asked("GET /search/nics").len();
    assert_eq!(lists(), 1, "{:?}", world.asked("GET /search"));
    let waits = agent.parts.status.waiting_for().join(" ");
    assert!(waits.contains("filtered list holds") && waits.contains(TARGET), "{waits}");
    assert!(world.writes().is_empty());
    sleep(5 * HOUR).await;
    assert_eq!(lists(), 2, "asked again after hours");
    world.heal();
    sleep(6 * HOUR).await;
    assert!(!world.has(2));
    lawful(&world);
}

/// Keeps warnings and news about services.
#[derive(Clone, Default)]
struct Lines(std::sync::Arc<std::sync::Mutex<Vec<String>>>);

struct Text(String);

impl tracing::field::Visit for Text {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, at: &tracing::Metadata<'_>) -> bool {
        *at.level() <= tracing::Level::INFO
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Text(String::new());
        event.record(&mut line);
        if line.0.contains("service=") || line.0.contains("the pass failed") {
            self.0.lock().unwrap().push(line.0);
        }
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// A NAPI that fails in this way from the first list on, and what is shown `after` its beginning.
async fn outage(how: Outage, after: std::time::Duration, reason: &str) {
    let lines = Lines::default();
    let _here = tracing::subscriber::set_default(lines.clone());
    let world = leak();
    world.outage(how);
    let (agent, _) = world.start(json!({"startup_delay": {"min": "60s", "max": "60s"},
        "server_nic_delay": {"min": "2m", "max": "2m"}, "relist": "0"}));
    sleep(MIN + after).await;
    let status = agent.status_json().await;
    let waits = status["waiting_for"].to_string();
    assert!(waits.contains("waiting for NAPI") && waits.contains(reason), "{how:?}: {waits}");
    assert!(status["last_error"].to_string().contains(reason), "{how:?}: {status}");
    assert!(status["last_error_at"].is_string(), "{status}");
    assert!(status.to_string().len() < 8192, "{status}"); // C35
    assert!(!status.to_string().contains("an outage"), "the peer's words: {status}"); // C35
    sleep(5 * MIN).await;
    world.heal();
    sleep(HOUR).await;
    let status = agent.status_json().await;
    assert_eq!((&status["last_error"], &status["last_error_at"]), (&json!(null), &json!(null)));
    assert_eq!(status["waiting_for"], json!([]), "{how:?}");
    assert!(!world.has(2), "the reap is made up for");
    let lines = lines.0.lock().unwrap().clone();
    let fails = lines
        .iter()
        .filter(|line| line.contains("a service that this program needs fails"))
        .count();
    let again = lines.iter().filter(|line| line.contains("answers again")).count();
    let passes = lines.iter().filter(|line| line.contains("the pass failed")).count();
    assert!((fails, again) == (1, 1) && passes <= 1, "{how:?}: {lines:#?}");
    lawful(&world);
}

#[tokio::test(start_paused = true)] // F76, C31
async fn hanging_napi_is_shown_within_seconds() {
    outage(Outage::Hangs, 6 * SEC, "no answer to GET /search/nics").await;
}

#[tokio::test(start_paused = true)] // F76, C31
async fn first_503_or_500_is_shown_at_once() {
    outage(Outage::Status(503), SEC / 10, "status 503").await;
    outage(Outage::Status(500), SEC / 10, "status 500").await;
}

#[tokio::test(start_paused = true)]
async fn broken_record_is_no_outage_in_the_log() {
    let lines = Lines::default();
    let _here = tracing::subscriber::set_default(lines.clone());
    let world = leak();
    world.nic(3, "live", json!({}));
    world.vm("live", "running", &[1, 3], false);
    assert!(world.napi.lose_network(&mac(3)));
    world.start(json!({}));
    sleep(24 * HOUR).await;
    let lines = lines.0.lock().unwrap().clone();
    assert!(lines.len() <= 2, "{lines:#?}");
}

#[tokio::test(start_paused = true)] // F78, C32
async fn clock_that_is_ahead_ends_no_hold() {
    let now = jiff::Timestamp::now();
    let ago = |hours| now - jiff::SignedDuration::from_hours(hours);
    // The node's clock is three hours ahead: the hold of two hours looks past.
    let world = leak_in(World::at(ago(3)));
    let holds = world.agent(crate::world::HOME, json!({})).parts.holds.clone();
    let two_hours = jiff::SignedDuration::from_hours(2);
    holds.hold(None, Some(two_hours), "migration".into(), "root".into(), ago(3)).unwrap();
    let (agent, _) = world.start(json!({"relist": "1h"}));
    assert!(agent.status_json().await["holds"].to_string().contains("migration"));
    sleep(HOUR).await;
    assert!(world.has(2) && world.writes().is_empty(), "{:?}", world.writes());
    assert!(agent.status_json().await["holds"].to_string().contains("migration"));
    sleep(2 * HOUR).await;
    assert_eq!(agent.status_json().await["holds"], json!([]), "both clocks are past its end");
    assert!(!world.has(2));
}
