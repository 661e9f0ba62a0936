// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `GET /evacuations`, and `GET`, `PUT` and `DELETE /evacuations/CN`.

use axum::extract::Request;
use serde_json::json;

use super::answer::{Answer, done, ok, params, uuid};
use super::shared::Front;
use crate::params::Params;
use crate::runner::release;

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
        let evacuations = &self.service.evacuations;
        let was_reserved = match evacuations.of(cn).await {
            Ok(row) => row.was_reserved,
            Err(refused) if refused.status() == 404 => {
                let server = self.service.peers.cnapi.get_server(&cn.to_string()).await?;
                server.reserved == Some(true)
            }
            Err(refused) => return Err(refused),
        };
        let row = evacuations.put(cn, &values, was_reserved, &through, now).await?;
        ok(&json!(row))
    }

    pub async fn end_evacuation(&self, cn: &str, params: &Params) -> Answer {
        let cn = uuid(cn)?;
        if self.service.evacuations.remove_unreadable(cn).await? {
            tracing::warn!(
                %cn,
                "removed an evacuation whose record cannot be read; where CNAPI has its node reserved, no VM is placed there \
                 until `reserved` is set to false"
            );
            return done();
        }
        release(&self.service, cn, &params.through, None).await?;
        done()
    }
}
