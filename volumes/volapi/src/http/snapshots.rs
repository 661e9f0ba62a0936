// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.
//! The routes of snapshots (RFD 26 §Snapshots REST API), which are there with `rfd26` only.

use http::{Method, StatusCode};
use serde_json::Value;

use super::answer::Answer;
use crate::service::Service;
use volumes_core::refused::Refused;
use volumes_core::requests::Params;
use volumes_core::snapshots;

/// What a request about snapshots is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Create,
    All,
    One,
    RollBack,
}

impl Route {
    /// Returns the route of what follows `/volumes/:uuid/`, and the snapshot's name in it, as it came.
    pub(super) fn of<'a>(parts: &[&'a str]) -> Option<(Route, Option<&'a str>)> {
        Some(match parts {
            ["snapshot"] => (Route::Create, None),
            ["snapshots"] => (Route::All, None),
            ["snapshots", name] => (Route::One, Some(name)),
            ["rollbacktosnapshot"] => (Route::RollBack, None),
            _ => return None,
        })
    }

    pub(super) fn methods(self) -> &'static str {
        match self {
            Route::Create | Route::RollBack => "POST",
            Route::All => "GET",
            Route::One => "GET, DELETE",
        }
    }

    /// Both the volume and the snapshot of a roll-back are called `uuid`: gives the snapshot's, which is in the body,
    /// another name, before the volume's takes its place.
    pub(super) fn rename(self, params: &mut Params) {
        if self == Route::RollBack
            && let Some(uuid) = params.shift_remove("uuid")
        {
            params.insert("snapshot_uuid".to_owned(), uuid);
        }
    }

    pub(super) async fn act(
        self,
        service: &Service,
        method: &Method,
        params: &Params,
    ) -> Result<Answer, Refused> {
        let ok = |body: Value| Answer::with(StatusCode::OK, body);
        Ok(match self {
            Route::Create => {
                let asked = snapshots::create(params)?;
                Answer::with(StatusCode::CREATED, service.snapshots.create(&asked).await?)
            }
            Route::All => ok(service.snapshots.all(&snapshots::list(params)?).await?),
            Route::One if method == Method::DELETE => {
                ok(service.snapshots.delete(&snapshots::one(params)?).await?)
            }
            Route::One => ok(service.snapshots.one(&snapshots::one(params)?).await?),
            Route::RollBack => {
                ok(service.snapshots.roll_back(&snapshots::roll_back(params)?).await?)
            }
        })
    }
}
