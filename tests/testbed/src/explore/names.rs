// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What all parties know: the nodes, and who they are.

use migration_agent::wire::Connection;
use migration_core::intent::End;
use sdc_clients::identity::Identity;
use uuid::Uuid;

/// A connection for data that comes in, and who has made it.
pub type Calls = (Connection, Identity);

/// The node of a copy.
pub fn uuid(end: End) -> Uuid {
    match end {
        End::Source => Uuid::from_u128(0xa000_0000_0000_4000_8000_0000_0000_000a),
        End::Target => Uuid::from_u128(0xb000_0000_0000_4000_8000_0000_0000_000b),
    }
}

/// The node whose agent answers under this name.
pub fn uuid_of(host: &str) -> Option<Uuid> {
    let end = [End::Source, End::Target].into_iter().find(|end| host == format!("agent-{end}"));
    end.map(uuid)
}

/// Who answers under this name, of those who prove it.
pub fn identity_of(host: &str) -> Option<Identity> {
    let is_service = host.starts_with("service-");
    uuid_of(host).map(Identity::Agent).or(is_service.then_some(Identity::Service))
}
