// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Snapshots of the dataset that is delegated to a VM, which the migration-agent of its node makes.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /vms/UUID/snapshots` | [`Snapshot`]s, the oldest first |
//! | `PUT /vms/UUID/snapshots/NAME` | the [`Snapshot`], also where it is there already |
//! | `DELETE /vms/UUID/snapshots/NAME` | also where it is not there |
//! | `POST /vms/UUID/snapshots/NAME/rollback` | [`RolledBack`] |
//!
//! Names begin with [`PREFIX`]; snapshots of other names are neither shown nor touched. A refusal says what stands
//! against it: 507 `NoSpace`, 409 `NoDelegatedDataset`, `NoSnapshot`, `OtherSnapshots`, 422 `InvalidParameters`.
//! 503 `VmRuns`, `VmMoves`, `HiddenCopy`, and 404 for a VM that is not there, may pass.

use std::time::Duration;

use ::http::Method;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::agents::NodeAgents;
use crate::error::Error;
use crate::http::Call;

/// How the names of these snapshots begin.
pub const PREFIX: &str = "volsnap-";
/// How long the agent may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A snapshot.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Its name, without the dataset's.
    pub name: String,
    /// When it was made, in seconds since 1970.
    pub created: i64,
    /// What would be free without it, in bytes.
    pub used: u64,
}

/// A dataset that is as it was.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolledBack {
    /// The later snapshots that went for it, the oldest first. Those that an earlier try had removed are not
    /// among them.
    pub dropped: Vec<String>,
    /// Those that there still are, the oldest first.
    pub left: Vec<String>,
}

/// The snapshots of all nodes.
#[derive(Clone, Debug)]
pub struct Snapshots {
    agents: NodeAgents,
}

impl Snapshots {
    /// Those that these agents make.
    pub fn new(agents: NodeAgents) -> Snapshots {
        Snapshots { agents }
    }

    /// Returns the snapshots of a VM of this node.
    pub async fn list(&self, cn: Uuid, vm: Uuid) -> Result<Vec<Snapshot>, Error> {
        let call = Call::get(&["vms", &vm.to_string(), "snapshots"]).timeout(PATIENCE);
        self.agents.execute(cn, call).await?.json("snapshots")
    }

    /// Makes a snapshot, if it is not there.
    pub async fn create(&self, cn: Uuid, vm: Uuid, name: &str) -> Result<Snapshot, Error> {
        self.agents.execute(cn, call(Method::PUT, vm, name, &[])).await?.json("a snapshot")
    }

    /// Destroys a snapshot, if it is there.
    pub async fn destroy(&self, cn: Uuid, vm: Uuid, name: &str) -> Result<(), Error> {
        self.agents.execute(cn, call(Method::DELETE, vm, name, &[])).await.map(drop)
    }

    /// Makes the dataset as it was; the VM must be stopped. What was written since goes, and later snapshots
    /// too.
    pub async fn roll_back(&self, cn: Uuid, vm: Uuid, name: &str) -> Result<RolledBack, Error> {
        let call = call(Method::POST, vm, name, &["rollback"]);
        self.agents.execute(cn, call).await?.json("what is left")
    }
}

fn call(method: Method, vm: Uuid, name: &str, rest: &[&str]) -> Call {
    let vm = vm.to_string();
    let path = [&["vms", &vm, "snapshots", name], rest].concat();
    Call::new(method, &path).timeout(PATIENCE)
}
