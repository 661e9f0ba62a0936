// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/metrics` in the OpenMetrics text format: what every program tells of itself, the page, and a listener of
//! its own for those who collect metrics from other nodes.

use std::net::SocketAddr;
use std::time::Duration;

use axum::routing::get_service;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::cli::version;
use crate::http::{Body, Limits, Router, Server, listen, refuse, reply};
use crate::process;
use crate::tasks::{Shutdown, Tasks};

const CONTENT: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// A busy collector has a few connections, and asks every few seconds.
const LIMITS: (usize, u32) = (16, 10);
/// An address that cannot be had yet, as at boot, is tried again after this time.
const AGAIN: Duration = Duration::from_secs(10);

/// Buckets of durations, in seconds.
const BUCKETS: [f64; 12] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0];

/// How long something took, each time.
#[derive(Clone, Debug)]
pub struct Durations(Histogram);

impl Default for Durations {
    fn default() -> Self {
        Self(Histogram::new(BUCKETS))
    }
}

impl Durations {
    /// Adds one time.
    pub fn took(&self, time: Duration) {
        self.0.observe(time.as_secs_f64());
    }

    /// Adds them to a registry.
    pub fn register(&self, registry: &mut Registry, name: &str, help: &str) {
        registry.register_with_unit(name, help, Unit::Seconds, self.0.clone());
    }
}

/// Returns a registry that tells of the process; `fill` adds to it what the program, under this prefix, tells.
pub fn registry(prefix: &str, fill: impl FnOnce(&mut Registry)) -> Registry {
    let mut registry = Registry::default();
    let about = registry.sub_registry_with_prefix("process");
    let usage = process::usage();
    let resident = ConstGauge::new(usage.resident);
    about.register_with_unit("resident_memory", "Memory in core", Unit::Bytes, resident);
    let cpu = ConstCounter::new(usage.cpu.as_secs_f64());
    about.register_with_unit("cpu", "Time on a processor", Unit::Seconds, cpu);
    let (open, most) = process::descriptors();
    let limits =
        [("open_fds", "Open descriptors", open), ("max_fds", "How many may be open", most)];
    for (name, help, count) in limits {
        if let Some(count) = count {
            about.register(name, help, ConstGauge::new(count));
        }
    }
    let ours = registry.sub_registry_with_prefix(prefix);
    ours.register("build", "The version that runs, and its commit", Info::new(version::labels()));
    fill(ours);
    registry
}

/// A name, its help, and the number now.
pub type Number<N> = (&'static str, &'static str, N);

/// Adds counters, whose names get `_total`.
pub fn counters(registry: &mut Registry, all: impl IntoIterator<Item = Number<u64>>) {
    for (name, help, count) in all {
        registry.register(name, help, ConstCounter::new(count));
    }
}

/// The labels of a value.
pub type Labels = Vec<(&'static str, &'static str)>;

/// Counters that have a value for each set of labels: name, help, values.
type Labelled = (&'static str, &'static str, Vec<(Labels, u64)>);

#[derive(Debug)]
struct Counted(Vec<Labelled>);

impl Collector for Counted {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (name, help, values) in &self.0 {
            let kind = ConstCounter::new(0u64).metric_type();
            let mut described = encoder.encode_descriptor(name, help, None, kind)?;
            for (labels, value) in values {
                let family = described.encode_family(labels)?;
                ConstCounter::new(*value).encode(family)?;
            }
        }
        Ok(())
    }
}

/// Adds counters with labels, whose names get `_total`.
pub fn labelled(registry: &mut Registry, all: impl IntoIterator<Item = Labelled>) {
    registry.register_collector(Box::new(Counted(all.into_iter().collect())));
}

/// Returns counts by reason as values of a counter with labels.
pub fn by_reason(counts: impl IntoIterator<Item = (&'static str, u64)>) -> Vec<(Labels, u64)> {
    counts.into_iter().map(|(name, count)| (vec![("reason", name)], count)).collect()
}

pub fn gauges(registry: &mut Registry, all: impl IntoIterator<Item = Number<f64>>) {
    for (name, help, value) in all {
        registry.register(name, help, ConstGauge::new(value));
    }
}

/// Returns a count as a gauge has it.
pub fn size(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Returns 1 or 0.
pub fn flag(on: bool) -> f64 {
    f64::from(u8::from(on))
}

/// Returns a time as a gauge has it, in whole seconds since 1970; none is 0.
pub fn timestamp(at: Option<Timestamp>) -> f64 {
    let seconds = at.and_then(|at| u64::try_from(at.as_second()).ok()).unwrap_or(0);
    Duration::from_secs(seconds).as_secs_f64()
}

/// Returns the registry as a response.
pub fn answer(registry: &Registry) -> Response<Body> {
    let mut text = String::new();
    if encode(&mut text, registry).is_err() {
        return refuse(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            "metrics cannot be written",
        );
    }
    let mut response = reply(StatusCode::OK, text);
    response.headers_mut().insert(CONTENT_TYPE, CONTENT);
    response
}

/// Serves the page `/metrics` of `pages`, and no other, at an address that other nodes may reach, if there is one.
pub fn serve(address: Option<SocketAddr>, pages: Router, tasks: &Tasks, shutdown: &Shutdown) {
    let Some(address) = address else { return };
    let only = Router::new().route("/metrics", get_service(pages));
    let (connections, requests_per_second) = LIMITS;
    let limits = Limits { connections, requests_per_second, ..Limits::default() };
    let server = Server::new(limits, shutdown.clone()).under_any_name();
    let shutdown = shutdown.clone();
    tasks.spawn("metrics", async move {
        loop {
            match listen(address).await {
                Ok((listener, _)) => {
                    tracing::info!(%address, "serving metrics");
                    return server.serve(listener, only).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot open the metrics port; trying again")
                }
            }
            // Both arms are cancel-safe.
            tokio::select! {
                () = shutdown.wait() => return,
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    });
}
