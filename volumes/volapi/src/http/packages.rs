// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/volumepackages` and `/volumepackages/:uuid`, where a name does for the uuid.

use http::{Method, StatusCode};

use super::answer::Answer;
use crate::service::Service;
use volumes_core::package;
use volumes_core::refused::Refused;
use volumes_core::requests::Params;

/// Lists packages, or makes one.
pub(super) async fn all(
    service: &Service,
    method: &Method,
    params: &Params,
) -> Result<Answer, Refused> {
    if method == Method::POST {
        let made = service.packages.add(&package::create(params)?).await?;
        return Ok(Answer::with(StatusCode::CREATED, made));
    }
    let owner = package::list(params)?;
    Ok(Answer::with(StatusCode::OK, service.packages.all(owner.as_deref()).await?))
}

/// Shows a package, or activates or deactivates it.
pub(super) async fn one(
    service: &Service,
    method: &Method,
    params: &Params,
) -> Result<Answer, Refused> {
    let shown = if method == Method::POST {
        let (package, active) = package::update(params)?;
        service.packages.set_active(&package, active).await?
    } else {
        service.packages.one(&package::get(params)?).await?
    };
    Ok(Answer::with(StatusCode::OK, shown))
}
