// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/volumes/:uuid/attachtonetwork` and `/volumes/:uuid/detachfromnetwork`.

use http::StatusCode;

use super::answer::Answer;
use crate::service::Service;
use volumes_core::networks::{self, Way};
use volumes_core::refused::Refused;
use volumes_core::requests::Params;

/// Changes the networks of a volume.
pub(super) async fn change(
    service: &Service,
    way: Way,
    params: &Params,
) -> Result<Answer, Refused> {
    let asked = networks::read(params, way)?;
    Ok(Answer::with(StatusCode::OK, service.networks.change(&asked).await?))
}
