// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! volapi creates the volume of a run, in process, and follows its storage VM until that runs.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use axum::body::{Body, to_bytes};
use daemon::{Shutdown, Tasks};
use sdc_clients::Http;
use sdc_clients::http::Transport;
use serde_json::{Value, json};
use store::Store;
use volapi::peers::Peers;
use volapi::records::Records;
use volumes_core::volume::State;

use super::player::Player;
use crate::volapi::peers::DataCentre;
use crate::volapi::running::start_of;

/// So often a storage VM is looked at: more often than it was in any run.
const LOOKS: usize = 100;

/// What the tenant asked for.
fn asked() -> Value {
    json!({
        "type": "tritonnfs", "name": "vol-one", "owner_uuid": "6057774b-9460-4112-bc4a-3de5eb656100",
        "networks": ["146b9442-f005-4cb5-931f-6ebac6e8f7b4"], "tags": { "a": "b" },
    })
}

/// Creates the volume.
pub(super) async fn create(player: &Player) -> anyhow::Result<()> {
    // What a process asks when it starts is none of the run.
    let others = DataCentre::new(&json!({}))?.peers()?;
    let http = |peer: &'static str| {
        let way: Arc<dyn Transport> = Arc::new(player.peer(peer));
        Http::with_transport(&format!("http://{peer}"), "volapi", way)
            .map(|http| http.without_retries())
    };
    let peers = Peers {
        vmapi: http("vmapi")?,
        cnapi: http("cnapi")?,
        papi: http("papi")?,
        napi: http("napi")?,
        ..others
    };
    let records = Records::open(Store::in_memory()?).await?;
    let service = start_of(records, peers, |settings| settings.rfd26 = true).await;
    let routes = volapi::http::router(Arc::clone(&service), Tasks::new(Shutdown::new()), "test");
    let request = http::Request::post("/volumes").header("content-type", "application/json");
    let answer = daemon::http::call(routes, request.body(Body::from(asked().to_string()))?).await;
    let status = answer.status();
    let volume: Value = serde_json::from_slice(&to_bytes(answer.into_body(), usize::MAX).await?)?;
    ensure!(status == 201, "{status} {volume}");
    let vm = volume["vm_uuid"].as_str().context("a volume has a VM")?;
    for _ in 0..LOOKS {
        service.follower.follow(vm, None).await?;
        if player.is_over() {
            break;
        }
    }
    let uuid = volume["uuid"].as_str().unwrap_or_default();
    let made = service.shared.records.volume(uuid, None).await?.context("a volume is kept")?;
    ensure!(made.value.state() == State::Ready, "{:?}", made.value.state());
    Ok(())
}
