// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What all parties know: the nodes, the secret.

use migration_core::journal::End;
use sdc_clients::signed::Secret;
use uuid::Uuid;

/// The data centre's secret.
pub fn secret() -> anyhow::Result<Secret> {
    Secret::of(b"the secret of the data centre, long enough").map_err(anyhow::Error::new)
}

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
