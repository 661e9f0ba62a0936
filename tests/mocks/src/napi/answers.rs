// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Bodies of answers: the ping, a foreign record.

use serde_json::{Value, json};

use super::eras::Era;
use super::mac;

pub(super) fn ping(era: Era, initializing: bool) -> Value {
    let mut config = json!({ "fabrics_enabled": era.has_fabrics() });
    if era.has_fabrics() {
        config["subnet_alloc_enabled"] = json!(false);
    }
    json!({
        "config": config,
        "healthy": !initializing,
        "services": { "moray": if initializing { "offline" } else { "online" } },
        "status": if initializing { "initializing" } else { "OK" },
    })
}

/// A NIC of another node.
pub(super) fn foreign() -> Value {
    json!({
        "belongs_to_type": "zone",
        "belongs_to_uuid": "99999999-0000-4000-8000-000000000001",
        "mac": mac::print(0x90b8_d0ff_ff01),
        "owner_uuid": "99999999-0000-4000-8000-000000000002",
        "primary": false,
        "state": "running",
        "created_timestamp": "2020-01-01T00:00:00.000Z",
        "modified_timestamp": "2020-01-01T00:00:00.000Z",
        "cn_uuid": "99999999-0000-4000-8000-000000000003",
    })
}
