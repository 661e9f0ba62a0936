// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! kill -9 of volapi before and after each request of a create and of a delete, and of VMAPI and of PostgreSQL
//! at some of them. What holds after the return is in the contract (V50, V51, P15).

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use rig::postgres::Cluster;
use sdc_clients::http::Call;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::rig::{OWNER, Rig, Volapi, ask, create, post};
use crate::common::LATE;

/// From the return to a record that stays, and to a name that can be used: 30 s, and what a busy machine adds.
const SOON: Duration = Duration::from_secs(120);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// Worlds at once: each of them mostly waits.
const AT_ONCE: usize = 9;
const VOLUME: &str = "11111111-1111-4111-8111-111111111111";

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Create,
    Delete,
}

impl Doing {
    /// The requests that it sends, in this order.
    fn steps(self) -> &'static [&'static str] {
        match self {
            Doing::Create => &[
                "napi GET /networks/*",
                "cnapi POST /servers/default/tickets",
                "cnapi GET /tickets/*/wait",
                "cnapi GET /tickets/*",
                "papi GET /packages",
                "vmapi POST /vms",
                "cnapi PUT /tickets/*/release",
            ],
            Doing::Delete => &[
                "cnapi POST /servers/default/tickets",
                "cnapi GET /tickets/*/wait",
                "cnapi GET /tickets/*",
                "vmapi GET /vms/*",
                "vmapi DELETE /vms/*",
                "cnapi PUT /tickets/*/release",
            ],
        }
    }

    /// The places at which something may die.
    fn places(self) -> impl Iterator<Item = String> {
        self.steps()
            .iter()
            .flat_map(|step| ["before", "after"].map(|when| format!("{when} {step}")))
    }

    /// Returns the volume that it is about; to be deleted, it is ready, and nothing more is to be heard of it.
    async fn volume(self, rig: &Rig, volapi: &Volapi) -> String {
        if self == Doing::Create {
            return VOLUME.to_owned();
        }
        let volume = volapi.ready("name").await;
        rig.heard(volapi, &volume, &[]).await;
        volume["uuid"].as_str().unwrap().to_owned()
    }

    fn call(self, volume: &str) -> Call {
        match self {
            Doing::Create => create(Some(volume), "name"),
            Doing::Delete => Call::new(http::Method::DELETE, &["volumes", volume]).timeout(LATE),
        }
    }
}

/// Who dies, and for how long the others go on without it.
#[derive(Clone, Copy, Debug)]
enum Victim<'a> {
    Volapi,
    Vmapi,
    Database(&'a Cluster, Duration),
}

/// One world, in which the victim dies before or after a request.
async fn dies(victim: Victim<'_>, doing: Doing, at: String) {
    let mut rig = Rig::start().await;
    let set = match victim {
        Victim::Database(cluster, _) => {
            let name = format!("of_{doing:?}").to_lowercase();
            json!({"postgres": cluster.database(&name).await})
        }
        _ => json!({}),
    };
    let mut volapi = rig.volapi(set.clone()).await;
    rig.listed(1).await;
    let volume = doing.volume(&rig, &volapi).await;
    let reserve =
        json!({"owner_uuid": OWNER, "job_uuid": VOLUME, "vm_uuid": VOLUME, "volume_name": "kept"});
    assert_eq!(volapi.ask(post(&["volumereservations"], reserve)).await.0, 201);
    let held = rig.gate.hold(&at);
    let (http, call) = (volapi.http(), doing.call(&volume));
    let mut asked = tokio::spawn(async move { ask(&http, call).await.0 });
    tokio::select! {
        held = held => held.unwrap(),
        said = &mut asked => panic!("{doing:?} has no step {at}: {said:?}"),
    }
    let place = format!("{victim:?} dies {at} ({doing:?})");
    let said = match victim {
        Victim::Volapi => {
            volapi.dies().await;
            let said = asked.await.unwrap();
            volapi = rig.volapi(set).await;
            said
        }
        Victim::Vmapi => {
            rig.vmapi_dies().await;
            rig.gate.open();
            let said = asked.await.unwrap();
            rig.vmapi_returns().await;
            said
        }
        Victim::Database(cluster, away) => {
            cluster.kill();
            rig.gate.open();
            tokio::time::sleep(away).await; // For so long it is away.
            cluster.run().await;
            asked.await.unwrap()
        }
    };
    After { rig: &rig, volapi: &volapi, place: &place, returned: Instant::now() }
        .all_is_well(doing, &volume, said)
        .await;
    volapi.stop().await;
}

/// A world after the return of what died.
struct After<'a> {
    rig: &'a Rig,
    volapi: &'a Volapi,
    place: &'a str,
    returned: Instant,
}

impl After<'_> {
    /// `said` is the status of the answer, 0 where none came.
    async fn all_is_well(&self, doing: Doing, volume: &str, said: u16) {
        let place = self.place;
        let became = self.became(doing, volume, said).await;
        let vms = self.rig.storage_vms(volume);
        match became.as_str() {
            "gone" => assert!(vms.is_empty(), "{place}: {vms:?} of no volume"),
            _ => assert!(vms.len() <= 1, "{place}: {vms:?}"),
        }
        let other = self.name_is_usable(volume).await;
        self.until("the new one is ready", async || self.state(&other).await == "ready").await;
        self.until("tickets are given back", async || self.rig.tickets().is_empty()).await;
        assert_eq!(self.rig.storage_vms(&other).len(), 1, "{place}");
        let named = self.volapi.ask(Call::get(&["volumes"]).query("name", "name")).await.1;
        let holds = |it: &&Value| it["state"] == "ready" || it["state"] == "creating";
        assert_eq!(named.as_array().unwrap().iter().filter(holds).count(), 1, "{place}: {named}");
        // What was acknowledged before is there.
        let kept = self.volapi.ask(Call::get(&["volumereservations"])).await.1;
        assert_eq!(kept[0]["volume_name"], "kept", "{place}: {kept}");
    }

    /// Returns the state in which the volume stays. What was acknowledged happens.
    async fn became(&self, doing: Doing, volume: &str, said: u16) -> String {
        let stays = |state: &str| match (doing, said) {
            (Doing::Create, 201) => state == "ready",
            (Doing::Delete, 204) => state == "gone",
            _ => ["ready", "failed", "gone"].contains(&state),
        };
        self.until("the record stays", async || stays(&self.state(volume).await)).await;
        self.state(volume).await
    }

    async fn state(&self, volume: &str) -> String {
        match self.volapi.get(volume).await {
            (404, _) => "gone".to_owned(),
            (200, shown) => shown["state"].as_str().unwrap().to_owned(),
            (status, body) => format!("{status} {body}"),
        }
    }

    /// Creates a volume of this name, after the one that has it was deleted.
    async fn name_is_usable(&self, volume: &str) -> String {
        let other = "22222222-2222-4222-8222-222222222222";
        self.until("the name is usable", async || {
            match self.volapi.ask(create(Some(other), "name")).await {
                (201, _) => return true,
                (409, body) if body["code"] == "VolumeAlreadyExists" => {
                    let (status, body) = self.volapi.delete(volume).await;
                    assert!([204, 404].contains(&status), "{}: {status} {body}", self.place);
                }
                (status, body) => panic!("{}: {status} {body}", self.place),
            }
            false
        })
        .await;
        other.to_owned()
    }

    /// Looks until it holds, for as long as is promised.
    async fn until<F: Future<Output = bool>>(&self, what: &str, holds: impl Fn() -> F) {
        while !holds().await {
            let all = self.volapi.ask(Call::get(&["volumes"])).await.1;
            assert!(self.returned.elapsed() < SOON, "{}: never: {what}; {all}", self.place);
            tokio::time::sleep(LOOK).await; // A poll: nothing tells.
        }
    }
}

fn places() -> impl Iterator<Item = (Doing, String)> {
    let of_it = |doing: Doing| doing.places().map(move |place| (doing, place));
    [Doing::Create, Doing::Delete].into_iter().flat_map(of_it)
}

#[tokio::test] // V50 V51
async fn a_create_and_a_delete_send_these_requests() {
    for doing in [Doing::Create, Doing::Delete] {
        let rig = Rig::start().await;
        let volapi = rig.volapi(json!({})).await;
        rig.listed(1).await;
        let volume = doing.volume(&rig, &volapi).await;
        rig.gate.passed();
        let (status, body) = volapi.ask(doing.call(&volume)).await;
        assert!([201, 204].contains(&status), "{status} {body}");
        let mut seen = Vec::new();
        for place in rig.gate.passed() {
            // What the updater asks of a VM that came or went.
            let is_own =
                place.ends_with("vmapi GET /vms/*") && !doing.places().any(|it| it == place);
            if !is_own && !seen.contains(&place) {
                seen.push(place);
            }
        }
        assert_eq!(seen, doing.places().collect::<Vec<_>>());
        volapi.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")] // V50 V51
async fn volapi_may_be_killed_at_each_request() {
    let worlds = places().map(|(doing, place)| dies(Victim::Volapi, doing, place));
    stream::iter(worlds).buffer_unordered(AT_ONCE).collect::<()>().await;
}

#[tokio::test(flavor = "multi_thread")] // V50 V51
async fn vmapi_may_be_killed_at_its_own_requests() {
    let own = places().filter(|(_, place)| place.contains(" vmapi "));
    let first = (Doing::Create, "before napi GET /networks/*".to_owned());
    let worlds = own.chain([first]).map(|(doing, place)| dies(Victim::Vmapi, doing, place));
    stream::iter(worlds).buffer_unordered(AT_ONCE).collect::<()>().await;
}

#[tokio::test(flavor = "multi_thread")] // V50 V51
async fn the_database_may_be_killed_under_the_process() {
    let Some(cluster) = Cluster::start().await else { return };
    // Shorter than a call waits for its return, and longer.
    for (doing, place, away) in
        [(Doing::Delete, "after vmapi GET /vms/*", 0), (Doing::Create, "after vmapi POST /vms", 16)]
    {
        let victim = Victim::Database(&cluster, Duration::from_secs(away));
        dies(victim, doing, place.to_owned()).await;
    }
}
