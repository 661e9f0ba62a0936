// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the operator sees: `/status` and `/metrics`, on a port of this machine alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State as Shared;
use axum::routing::get;
use daemon::http::{Router, not_allowed, ok, with_ping};
use daemon::kept::Kept;
use daemon::metrics::{counters, flag, gauges, size, timestamp};
use daemon::timing::Clock;
use jiff::{SignedDuration, Timestamp, Unit};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::probes;
use crate::service::{Count, Service};
use crate::updater::State;
use volumes_core::volume::{State as VolumeState, Volume};

/// Volumes that failed and are named; `volumes` counts all.
const SHOWN: usize = 100;

/// The longest that a page waits for the storage, which tries for longer: a client waits 5 s, a Prometheus 10 s.
const PATIENCE: Duration = Duration::from_secs(3);

/// What the pages are made from.
pub struct Pages {
    pub service: Arc<Service>,
    pub updater: Arc<State>,
    /// What is known of the storage VMs that do not serve.
    pub probes: Arc<probes::State>,
    /// Since the start.
    pub clock: Clock,
    /// Whether the records outlive the zone's next image.
    pub kept: Kept,
}

impl Pages {
    /// Returns the routes.
    pub fn routes(self: &Arc<Self>) -> Router {
        let metrics = async |Shared(pages): Shared<Arc<Pages>>| {
            let read = timeout(PATIENCE, pages.by_state()).await;
            let volumes = read.ok().flatten().unwrap_or_default();
            let registry =
                daemon::metrics::registry("volapi", |registry| pages.fill(registry, &volumes));
            daemon::metrics::answer(&registry)
        };
        let own = Router::new().route("/metrics", get(metrics)).with_state(Arc::clone(self));
        with_ping(own.merge(self.shared()))
    }

    /// Returns `/status` alone, for the page of the data centre: at the address of the clients.
    pub fn shared(self: &Arc<Self>) -> Router {
        let status = get(async |Shared(pages): Shared<Arc<Pages>>| ok(&pages.status().await));
        let routes = Router::new().route("/status", status).with_state(Arc::clone(self));
        routes.method_not_allowed_fallback(not_allowed)
    }

    /// Returns the ready volumes that cannot be used now: which, why, since when. While the storage is away there
    /// are the storage VMs alone.
    async fn degraded(&self, is_healthy: bool) -> Vec<Value> {
        let now = daemon::wall::now();
        let since =
            |age: Duration| SignedDuration::try_from(age).map(|age| now - age).unwrap_or(now);
        // An age that is counted gives another fraction of a second each time.
        let shown = |at: Timestamp| at.round(Unit::Second).unwrap_or(at).to_string();
        let stopped = self.service.follower.stopped_for().into_iter();
        let stopped = stopped.map(|(vm, age)| (vm, since(age), "stopped", String::new()));
        let silent = self.probes.silent().into_iter();
        let silent = silent.map(|it| (it.vm, it.since, "does not serve", it.why));
        let mut all = Vec::new();
        for (vm, since, state, why) in stopped.chain(silent) {
            let found = match is_healthy {
                true => self.service.shared.records.volumes_with(&[("vm_uuid", &vm)]).await.ok(),
                false => None,
            };
            let volume = found.and_then(|found| found.into_iter().next()).map(|it| it.value);
            let of = |get: fn(&Volume) -> &str| volume.as_ref().map(get);
            let named = if state == "stopped" { "volume-stopped" } else { "volume-unserved" };
            let need = daemon::needs::find(named).zip(of(Volume::uuid));
            all.push(json!({
                "command": need.map(|(need, volume)| need.command_for(&[("VOLUME", volume)])),
                "volume": of(Volume::uuid),
                "name": of(Volume::name),
                "owner_uuid": of(Volume::owner_uuid),
                "vm_uuid": vm,
                "storage_vm": state,
                "since": shown(since),
                "why": why,
            }));
        }
        all
    }

    /// Returns the volumes that failed, and why; none while the storage is away.
    async fn failed(&self) -> Option<Vec<Value>> {
        let state = VolumeState::Failed.name();
        let found = self.service.shared.records.volumes_with(&[("state", state)]).await.ok()?;
        let need = daemon::needs::find("volumes-failed");
        let shown = |volume: &Volume| {
            json!({
                "command": need.map(|need| need.command),
                "volume": volume.uuid(),
                "name": volume.name(),
                "owner_uuid": volume.owner_uuid(),
                "vm_uuid": volume.vm_uuid(),
                "why": volume.failure(),
            })
        };
        Some(found.iter().take(SHOWN).map(|it| shown(&it.value)).collect())
    }

    /// Returns how many volumes are in each state; none while the storage is away.
    async fn by_state(&self) -> Option<BTreeMap<&'static str, usize>> {
        let mut counts = BTreeMap::new();
        for state in VolumeState::ALL {
            let found =
                self.service.shared.records.volumes_with(&[("state", state.name())]).await.ok()?;
            counts.insert(state.name(), found.len());
        }
        Some(counts)
    }

    /// Returns what the service waits for, for people.
    fn waiting_for(&self, is_healthy: bool) -> Vec<String> {
        let has_lease = self.updater.has_lease();
        let mut waits = Vec::new();
        let mut add = |waits_for: bool, what: &str| {
            if waits_for {
                waits.push(what.to_owned());
            }
        };
        add(!is_healthy, "the storage");
        add(
            !self.service.creates.has_images(),
            "the images of storage VMs: no volume can be created",
        );
        add(has_lease && !self.updater.follows(), "VMAPI's changefeed: states may be old");
        waits.extend(self.kept.warning().map(|why| format!("the move of its records: {why}")));
        waits
    }

    /// Returns true if the storage answers in time.
    async fn is_healthy(&self) -> bool {
        timeout(PATIENCE, self.service.shared.is_healthy()).await.unwrap_or(false)
    }

    /// Returns `/status`. What the storage has is null while it is away.
    pub async fn status(&self) -> Value {
        let is_healthy = self.is_healthy().await;
        let (volumes, failed, changes) = match is_healthy {
            true => {
                let changes = self.service.networks.shown().await.ok();
                (self.by_state().await, self.failed().await, changes)
            }
            false => (None, None, None),
        };
        let mut page = json!({
            "waiting_for": self.waiting_for(is_healthy),
            "version": env!("CARGO_PKG_VERSION"),
            "instance": self.service.shared.settings.instance,
            "healthy": is_healthy,
            "volumes": volumes,
            "degraded": self.degraded(is_healthy).await,
            "failed": failed,
            "out_of_reach": self.probes.out_of_reach(),
            "last_calls": self.probes.last_pass().map(|at| at.to_string()),
            "network_changes": changes,
            "runs_timers": self.updater.has_lease(),
            "follows_vms": self.updater.follows(),
            "last_listing": self.updater.last_listing().map(|at| at.to_string()),
            "last_error": self.updater.last_error(),
            "uptime_s": self.clock.now().as_secs(),
        });
        for count in Count::ALL {
            page[count.metric().0] = self.service.shared.counts.get(*count).into();
        }
        page
    }

    fn fill(&self, registry: &mut Registry, volumes: &BTreeMap<&'static str, usize>) {
        let counted = Count::ALL.iter().map(|count| {
            let (name, help) = count.metric();
            (name, help, self.service.shared.counts.get(*count))
        });
        counters(registry, counted);
        let of = |state: VolumeState| size(volumes.get(state.name()).copied().unwrap_or_default());
        gauges(
            registry,
            [
                ("volumes_creating", "Volumes that are being created", of(VolumeState::Creating)),
                ("volumes_ready", "Volumes that can be used", of(VolumeState::Ready)),
                ("volumes_failed", "Volumes that failed", of(VolumeState::Failed)),
                ("volumes_deleting", "Volumes that are being deleted", of(VolumeState::Deleting)),
                (
                    "volumes_rolling_back",
                    "Volumes that are being rolled back",
                    of(VolumeState::RollingBack),
                ),
                (
                    "volumes_degraded",
                    "Ready volumes whose storage VM is stopped",
                    size(self.service.follower.degraded().len()),
                ),
                (
                    "volumes_silent",
                    "Ready volumes whose storage VM runs and does not serve",
                    size(self.probes.silent().len()),
                ),
                (
                    "volumes_out_of_reach",
                    "Ready volumes whose storage VM cannot be called from here",
                    size(self.probes.out_of_reach()),
                ),
                (
                    "last_calls_timestamp_seconds",
                    "When all storage VMs were last called; 0: never",
                    timestamp(self.probes.last_pass()),
                ),
                ("runs_timers", "1 if this instance has the lease", flag(self.updater.has_lease())),
                (
                    "follows_vms",
                    "1 while VMAPI's changefeed is connected",
                    flag(self.updater.follows()),
                ),
                ("storage_away", "1 while the storage cannot be read", flag(volumes.is_empty())),
                (
                    "last_listing_timestamp_seconds",
                    "When VMAPI's VMs were last listed; 0: never",
                    timestamp(self.updater.last_listing()),
                ),
                ("uptime_seconds", "Time since the start", self.clock.now().as_secs_f64()),
            ],
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use prometheus_client::encoding::text::encode;
    use sdc_clients::Http;
    use store::Store;

    use super::*;
    use crate::config::Config;
    use crate::peers::Peers;
    use crate::records::Records;

    const FILE: &str = r#"{"instance": "0b4a4a3e-8b7c-4a09-9c3e-2a5d8f5e0c11", "vmapi": {"url": "http://a"},
        "cnapi": {"url": "http://a"}, "papi": {"url": "http://a"}, "napi": {"url": "http://a"},
        "imgapi": {"url": "http://a"}, "workflow": {"url": "http://a"}}"#;

    async fn pages() -> Pages {
        pages_on(Store::in_memory().unwrap()).await
    }

    async fn pages_on(store: Store) -> Pages {
        let http = || Http::new("http://127.0.0.1:1", "test").unwrap();
        let peers = Peers {
            vmapi: http(),
            cnapi: http(),
            papi: http(),
            napi: http(),
            imgapi: http(),
            workflow: http(),
            snapshots: None,
        };
        let records = Records::open(store).await.unwrap();
        let settings = Config::from_json(FILE).unwrap().settings.clone();
        let service = Arc::new(Service::new(records, peers, settings));
        let (clock, kept) = (Clock::start(), Kept::default());
        Pages { service, updater: Arc::default(), probes: Arc::default(), clock, kept }
    }

    #[tokio::test]
    async fn documents_every_metric() {
        let (pages, mut text) = (pages().await, String::new());
        let mut registry = Registry::with_prefix("volapi");
        pages.fill(&mut registry, &pages.by_state().await.unwrap());
        encode(&mut text, &registry).unwrap();
        let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let names: Vec<String> = names
            .map(|line| match line.split_once(' ') {
                Some((name, "counter")) => format!("{name}_total"),
                Some((name, _)) => name.to_owned(),
                None => panic!("{line}"),
            })
            .collect();
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics-volapi.md");
        let page = std::fs::read_to_string(page).unwrap();
        for name in &names {
            assert!(page.contains(&format!("| `{name}` |")), "{name} is not in the table");
        }
        let rows = page.lines().filter(|line| line.starts_with("| `volapi_")).count();
        assert_eq!(rows, names.len(), "the table has unknown rows");
    }

    #[tokio::test]
    async fn the_status_stands_beside_the_routes_of_clients() {
        use daemon::{Shutdown, Tasks};
        use sdc_clients::http::Call;

        let pages = Arc::new(pages().await);
        let tasks = Tasks::new(Shutdown::new());
        let clients = crate::http::router(Arc::clone(&pages.service), tasks, "volapi");
        let routes = pages.shared().merge(clients);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let http = Http::new(&url, "test").unwrap();
        let page = http.execute(Call::get(&["status"])).await.unwrap().object().unwrap();
        assert_eq!((&page["degraded"], &page["out_of_reach"]), (&json!([]), &json!(0)));
        // volapi's own answers are as before.
        let page = http.execute(Call::get(&["ping"])).await.unwrap().object().unwrap();
        assert_eq!(page["status"], "OK");
        let other = http.execute(Call::get(&["metrics"])).await.unwrap_err();
        assert_eq!((other.status(), other.code()), (Some(404), Some("ResourceNotFound")));
    }

    /// A storage that gives no answer while this is set.
    #[derive(Debug, Default)]
    struct Away(AtomicBool);

    impl store::Faults for Away {
        fn next(&self, _: store::Call) -> store::Fault {
            match self.0.load(Ordering::Relaxed) {
                true => store::Fault::Never,
                false => store::Fault::None,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_storage_that_is_away_is_reported_before_the_client_gives_up() {
        let away = Arc::new(Away::default());
        let pages = pages_on(Store::in_memory().unwrap().with_faults(away.clone())).await;
        away.0.store(true, Ordering::Relaxed);
        let page = timeout(Duration::from_secs(4), pages.status()).await.unwrap();
        assert_eq!(
            (&page["waiting_for"][0], &page["volumes"]),
            (&json!("the storage"), &Value::Null)
        );
    }

    #[tokio::test]
    async fn the_status_says_what_is_waited_for() {
        let page = pages().await.status().await;
        assert_eq!(page["waiting_for"][0], "the images of storage VMs: no volume can be created");
        assert_eq!((&page["healthy"], &page["volumes"]["ready"]), (&json!(true), &json!(0)));
    }
}
