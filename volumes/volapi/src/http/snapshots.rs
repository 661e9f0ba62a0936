// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.
//! The routes of snapshots (RFD 26 §Snapshots REST API) and of what became of them, which are there with `rfd26` only.

use daemon::http::Sender;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::answer::Answer;
use super::endpoints::Route;
use crate::service::Service;
use volumes_core::history;
use volumes_core::refused::Refused;
use volumes_core::requests::Params;
use volumes_core::snapshots;

/// Both the volume and the snapshot of a roll-back are called `uuid`: gives the snapshot's, which is in the body,
/// another name, before the volume's takes its place.
pub(super) fn rename(params: &mut Params) {
    if let Some(uuid) = params.shift_remove("uuid") {
        params.insert("snapshot_uuid".to_owned(), uuid);
    }
}

/// Answers one of the routes of snapshots.
pub(super) async fn act(
    route: Route,
    service: &Service,
    method: &Method,
    params: &Params,
    sender: &Sender,
) -> Result<Answer, Refused> {
    let ok = |body: Value| Answer::with(StatusCode::OK, body);
    Ok(match route {
        Route::MakeSnapshot => {
            let asked = snapshots::create(params)?;
            Answer::with(StatusCode::CREATED, service.snapshots.create(&asked, sender).await?)
        }
        Route::Snapshots => ok(service.snapshots.all(&snapshots::list(params)?).await?),
        Route::Snapshot if method == Method::DELETE => {
            ok(service.snapshots.delete(&snapshots::one(params)?, sender).await?)
        }
        Route::Snapshot => ok(service.snapshots.one(&snapshots::one(params)?).await?),
        Route::History => {
            let found = service.shared.records.ended(&history::wanted(params)?).await?;
            ok(json!(found))
        }
        _ => ok(service.snapshots.roll_back(&snapshots::roll_back(params)?, sender).await?),
    })
}
