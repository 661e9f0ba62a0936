// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `GET` and `PUT /settings`, and the same of one node.

use axum::extract::{Path, Request, State};
use daemon::http::Body;
use http::Response;
use uuid::Uuid;

use super::answer::{Answer, ok, params, respond, uuid};
use super::shared::Front;
use crate::settings::shown;

/// Answers `GET /settings`.
pub async fn all(State(front): State<Front>) -> Response<Body> {
    respond(front.settings(None).await)
}

/// Answers `GET /settings/CN`.
pub async fn of_cn(State(front): State<Front>, Path(cn): Path<String>) -> Response<Body> {
    let answer = async { front.settings(Some(uuid(&cn)?)).await };
    respond(answer.await)
}

/// Answers `PUT /settings`.
pub async fn change_all(State(front): State<Front>, request: Request) -> Response<Body> {
    respond(front.change(None, request).await)
}

/// Answers `PUT /settings/CN`.
pub async fn change_of_cn(
    State(front): State<Front>,
    Path(cn): Path<String>,
    request: Request,
) -> Response<Body> {
    let answer = async { front.change(Some(uuid(&cn)?), request).await };
    respond(answer.await)
}

impl Front {
    async fn settings(&self, cn: Option<Uuid>) -> Answer {
        ok(&shown(&self.service.settings.read().await?, cn))
    }

    async fn change(&self, cn: Option<Uuid>, request: Request) -> Answer {
        let values = params(request).await?.into_object();
        let changed = self.service.settings.change(cn, &values).await?;
        tracing::info!(?cn, values = %serde_json::Value::Object(values), "changed the settings");
        self.service.wake.notify_one();
        ok(&changed)
    }
}
