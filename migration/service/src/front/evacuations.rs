// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `GET /evacuations`, and `GET`, `PUT` and `DELETE /evacuations/CN`.

use axum::extract::Request;
use serde_json::json;

use super::answer::{Answer, done, ok, params, uuid};
use super::shared::Front;
use crate::params::Params;

impl Front {
    pub async fn evacuations(&self) -> Answer {
        ok(&json!(self.service.evacuations.all().await?))
    }

    pub async fn evacuation(&self, cn: &str) -> Answer {
        ok(&json!(self.service.evacuations.of(uuid(cn)?).await?))
    }

    pub async fn change_evacuation(&self, cn: &str, request: Request) -> Answer {
        let params = params(request).await?;
        let (through, values) = (params.through.clone(), params.into_object());
        let (cn, now) = (uuid(cn)?, self.service.clock.now());
        let row = self.service.evacuations.put(cn, &values, &through, now).await?;
        ok(&json!(row))
    }

    pub async fn end_evacuation(&self, cn: &str, params: &Params) -> Answer {
        let (cn, now) = (uuid(cn)?, self.service.clock.now());
        self.service.evacuations.end(cn, &params.through, now).await?;
        tracing::info!(%cn, "an evacuation ended");
        done()
    }
}
