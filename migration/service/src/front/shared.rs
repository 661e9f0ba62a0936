// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the routes work with.

use super::upstream::Upstream;
use crate::state::Service;

/// What the routes work with.
#[derive(Clone, Debug)]
pub struct Front {
    /// The records, the clients, the clock.
    pub service: Service,
    /// The VMAPI behind this service.
    pub upstream: Upstream,
}
