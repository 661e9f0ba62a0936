// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! CNAPI as the agents of a node reach it.

use mocks::transport::InProcess;
use sdc_clients::Error;
use sdc_clients::http::{Request, Response, Transport as _};

use super::bugs::Bug;
use super::centre::Centre;

/// CNAPI, which knows no node of an agent that does not look for a second machine.
pub struct Cnapi(InProcess);

impl Cnapi {
    /// The data centre's.
    pub fn new(centre: &Centre) -> Self {
        let is_blind = centre.bug == Some(Bug::MissTheSecondMachine);
        let none = mocks::cnapi::Store::default();
        Self(InProcess::new(if is_blind { none } else { centre.cnapi.clone() }))
    }

    /// Asks it.
    pub async fn send(&self, request: Request) -> Result<Response, Error> {
        self.0.send(request).await
    }
}
