// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use daemon::http::Counts;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use crate::reconcile::status::Status;
use crate::store::Published;
use crate::store::note::Traits;
use vm_model::origin::Origin;

/// Names and values.
type Labels<const N: usize> = [(&'static str, String); N];
type Counters = Family<Labels<1>, Counter>;
type Gauges<const N: usize> = Family<Labels<N>, Gauge>;

/// Returns a registry with the current numbers.
pub(super) fn registry(
    published: &Published,
    status: &Status,
    counts: &Counts,
    listeners: usize,
) -> Registry {
    daemon::metrics::registry("vminfod", |ours| {
        engine(ours, status);
        stream(ours, published, listeners, counts);
        server(ours, counts);
    })
}

fn engine(registry: &mut Registry, status: &Status) {
    let view = status.view();
    let c = view.counters;
    let mut count = |name: &str, help: &str, value: u64| {
        registry.register(name, help, ConstCounter::new(value))
    };
    count("loads", "Readings of one VM", c.loads);
    count("load_failures", "Readings of one VM that failed", c.load_failures);
    count("refreshes", "Full refreshes that ended", c.refreshes);
    count("sweeps", "Sweeps that ended", c.sweeps);
    count("reboots_shown", "Reboots shown although both readings said running", c.reboots_shown);
    count(
        "files_confirmed",
        "Files a refresh did not read because nothing about them had changed",
        c.confirmed,
    );
    let unannounced = Counters::default();
    for class in Origin::ALL.map(Origin::name) {
        let n = view.unannounced.get(class).copied().unwrap_or(0);
        unannounced.get_or_create(&[("class", class.to_owned())]).inc_by(n);
    }
    registry.register(
        "unannounced",
        "Differences that no event had announced, by what differed",
        unannounced,
    );
    let (restarts, up) = (Counters::default(), Gauges::default());
    for (name, is_up) in &view.sources {
        let label = [("source", name.replace(' ', "_"))];
        up.get_or_create(&label).set(i64::from(*is_up));
        restarts.get_or_create(&label).inc_by(view.restarts.get(name).copied().unwrap_or(0));
    }
    registry.register("source_restarts", "Restarts of an event source", restarts);
    registry.register("source_up", "1 while an event source runs", up);
    let now = Instant::now();
    let mut show =
        |name: &str, help: &str, value: u64| registry.register(name, help, ConstGauge::new(value));
    show(
        "failing",
        "VMs and node-wide sources whose last reading failed",
        view.errors.len() as u64,
    );
    show("loads_running", "Readings of one VM under way", view.pending.len() as u64);
    show("loads_queued", "VMs that wait for a reading", view.queued().len() as u64);
    show("refreshing", "1 while a full refresh runs", u64::from(view.refresh.is_some()));
    show("stale", "1 while a node-wide source is too old to be trusted", u64::from(view.stale));
    let (age, took) = view.last_refresh.map(|(at, took)| (now - at, took)).unzip();
    seconds(registry, "last_refresh_age", "Time since the last full refresh ended", age);
    seconds(registry, "last_refresh_duration", "How long the last full refresh took", took);
    let took = "Time from the start of a reading of one VM until its effect can be seen";
    view.load_times.register(registry, "load_duration", took);
    let late = "Time from a signal until its effect can be seen";
    view.latencies.register(registry, "change_latency", late);
    seconds(registry, "uptime", "Time since the start", Some(now - status.started));
}

fn seconds(registry: &mut Registry, name: &str, help: &str, value: Option<Duration>) {
    let gauge = ConstGauge::new(value.map_or(f64::NAN, |span| span.as_secs_f64()));
    registry.register_with_unit(name, help, Unit::Seconds, gauge);
}

fn stream(registry: &mut Registry, published: &Published, listeners: usize, counts: &Counts) {
    let snapshot = published.snapshot();
    let (oldest, newest) = published.journal.span();
    registry.register("events", "Events committed", ConstCounter::new(snapshot.seq));
    let vms = Gauges::default();
    for Traits { state, brand } in snapshot.vms.values().map(|vm| &vm.traits) {
        let word = |text: &Option<String>| text.clone().unwrap_or_default();
        vms.get_or_create(&[("state", word(state)), ("brand", word(brand))]).inc();
    }
    registry.register("vms", "VM objects held", vms);
    let mut show =
        |name: &str, help: &str, value: u64| registry.register(name, help, ConstGauge::new(value));
    show("listeners", "Open event streams", listeners as u64);
    show("journal_events", "Events kept for listeners", (newest + 1).saturating_sub(oldest));
    registry.register_with_unit(
        "journal",
        "Size of the events kept for listeners",
        Unit::Bytes,
        ConstGauge::new(published.journal.bytes() as u64),
    );
    let cut = Counters::default();
    cut.get_or_create(&[("reason", "fell_behind".to_owned())]).inc_by(read(&counts.fell_behind));
    registry.register("listeners_cut", "Event streams ended for a reader that was too slow", cut);
}

fn server(registry: &mut Registry, counts: &Counts) {
    let mut count = |name: &str, help: &str, value: &AtomicU64| {
        registry.register(name, help, ConstCounter::new(read(value)));
    };
    count("http_requests", "Requests answered, refusals included", &counts.requests);
    count("http_connections", "Connections accepted", &counts.connections);
    let refused = Counters::default();
    for (reason, value) in [
        ("too_many_connections", &counts.refused),
        ("not_local", &counts.foreign),
        ("stalled", &counts.stalled),
    ] {
        refused.get_or_create(&[("reason", reason.to_owned())]).inc_by(read(value));
    }
    registry.register("http_refused", "Connections and requests refused or cut, by why", refused);
    registry.register(
        "http_connections_open",
        "Connections open now",
        ConstGauge::new(read(&counts.open)),
    );
}

fn read(value: &AtomicU64) -> u64 {
    value.load(Ordering::Relaxed)
}
