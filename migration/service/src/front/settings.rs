// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `GET` and `PUT /settings`, and the same of one node.

use axum::extract::Request;

use super::answer::{Answer, ok, params, uuid};
use super::shared::Front;
use crate::settings::shown;

impl Front {
    pub async fn settings(&self, cn: Option<&str>) -> Answer {
        let cn = cn.map(uuid).transpose()?;
        ok(&shown(&self.service.settings.read().await?, cn))
    }

    pub async fn change_settings(&self, cn: Option<&str>, request: Request) -> Answer {
        let cn = cn.map(uuid).transpose()?;
        let params = params(request).await?;
        let (through, values) = (params.through.clone(), params.into_object());
        let now = self.service.clock.now();
        let changed = self.service.settings.change(cn, &values, &through, now).await?;
        let of = cn.map_or_else(|| "the data centre".to_owned(), |cn| format!("node {cn}"));
        tracing::info!(of, values = %serde_json::Value::Object(values), "changed the settings");
        self.service.wake.notify_one();
        ok(&changed)
    }
}
