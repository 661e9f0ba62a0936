// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! volapi: shared volumes (RFD 26).
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let app = axum::Router::new().fallback(|| async { "[]" });
//! # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! # let url = format!("http://{}", listener.local_addr()?);
//! # tokio::spawn(async move { axum::serve(listener, app).await });
//! let volapi = sdc_clients::volapi::Volapi::new(sdc_clients::Http::new(&url, "my-service/1.0")?);
//! for volume in volapi.list(None).await? {
//!     println!("{} of {} is {}", volume.name, volume.owner_uuid, volume.state);
//! }
//! # Ok(()) }
//! ```

use ::http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::http::{Call, Http, LIST_TIMEOUT};

/// The longest list that is read.
const LIST_CAP: usize = 256 << 20;

/// A volume: the fields this project reads, and all others as they came.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// The volume.
    pub uuid: String,
    /// Its name, unique among the creating and ready volumes of its owner.
    pub name: String,
    /// Its owner.
    pub owner_uuid: String,
    /// In MiB.
    pub size: f64,
    /// One of `x-open`, or a word that is new.
    #[cfg_attr(feature = "schema", schemars(extend("x-open" = ["creating", "ready", "failed", "deleting"])))]
    pub state: String,
    /// Its storage VM.
    pub vm_uuid: String,
    /// The VMs that use it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<String>,
    /// When it was made, in ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_timestamp: Option<String>,
    /// Why it has failed; of a service with `rfd26` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Every other field.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A volume that is to be made. Unset fields are not sent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewVolume {
    /// Its owner.
    pub owner_uuid: String,
    /// Its name; volapi makes one up otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `tritonnfs`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The owner's fabric networks, of which one is the volume's.
    pub networks: Vec<String>,
    /// In MiB; the smallest one otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// A reservation: a VM that is being made needs a volume of this name.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reservation {
    /// The reservation.
    pub uuid: String,
    /// The owner of the VM and of the volume.
    pub owner_uuid: String,
    /// The name of the volume, which need not exist yet.
    pub volume_name: String,
    /// The VM.
    pub vm_uuid: String,
    /// The job that makes the VM.
    pub job_uuid: String,
    /// When it was made, in ISO 8601.
    pub create_timestamp: String,
    /// Every other field.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Something that has ended about a snapshot of a volume. What is not known is absent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndedSnapshot {
    /// The entry.
    pub id: String,
    /// When it ended, as ISO 8601.
    pub ended: String,
    /// When it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began: Option<String>,
    /// One of `x-open`, or a word that is new.
    #[cfg_attr(
        feature = "schema",
        schemars(extend("x-open" = ["snapshot", "delete-snapshot", "rollback", "went-with-volume"]))
    )]
    pub what: String,
    /// `successful` or `failed`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["successful", "failed"])))]
    pub outcome: String,
    /// The volume.
    pub volume_uuid: String,
    /// Its name then.
    pub volume_name: String,
    /// Its owner.
    pub owner_uuid: String,
    /// The snapshot.
    pub snapshot_uuid: String,
    /// Its name.
    pub snapshot_name: String,
    /// Who asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Through which program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A ready volume that cannot be used now.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Degraded {
    /// Its storage VM.
    pub vm_uuid: String,
    /// How that is: `stopped` or `does not serve`; an open set of words.
    pub storage_vm: String,
    /// Since when, in ISO 8601.
    pub since: String,
    /// What it says of itself, if that is known.
    pub why: String,
    /// Every other field.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A volume that has failed.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Failed {
    /// The volume.
    pub volume: String,
    /// Why, if that is known.
    pub why: Option<String>,
    /// Every other field.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What is wrong with volumes, by the status of the service; nothing of a service without one.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Troubles {
    /// Ready volumes that cannot be used now.
    pub degraded: Vec<Degraded>,
    /// Volumes that have failed, or as many of them as the status names; none while the storage is away.
    pub failed: Option<Vec<Failed>>,
}

/// A client of volapi.
#[derive(Debug, Clone)]
pub struct Volapi {
    http: Http,
}

impl Volapi {
    /// A client that speaks through `http`.
    pub fn new(http: Http) -> Volapi {
        Volapi { http }
    }

    /// All volumes, or those of an owner.
    pub async fn list(&self, owner: Option<&str>) -> Result<Vec<Volume>, Error> {
        let call = Call::get(&["volumes"]).query_opt("owner_uuid", owner);
        let call = call.timeout(LIST_TIMEOUT).body_cap(LIST_CAP);
        self.http.execute(call).await?.json("an array of volumes")
    }

    /// What has ended about the snapshots of a volume, or of all, since a time as ISO 8601; of a service with `rfd26`
    /// alone.
    pub async fn history(
        &self,
        volume: Option<&str>,
        since: Option<&str>,
    ) -> Result<Vec<EndedSnapshot>, Error> {
        let call = Call::get(&["volumehistory"]).query_opt("volume_uuid", volume);
        let call = call.query_opt("since", since).timeout(LIST_TIMEOUT);
        self.http.execute(call).await?.json("an array of what has ended")
    }

    /// What is wrong with volumes; nothing of a service without a status.
    pub async fn troubles(&self) -> Result<Troubles, Error> {
        match self.http.execute(Call::get(&["status"]).timeout(LIST_TIMEOUT)).await {
            Ok(reply) => reply.json("a status"),
            Err(error) if error.status() == Some(404) => Ok(Troubles::default()),
            Err(error) => Err(error),
        }
    }

    /// One volume.
    pub async fn get(&self, uuid: &str) -> Result<Volume, Error> {
        let reply = self.http.execute(Call::get(&["volumes", uuid])).await?;
        let volume: Volume = reply.json("a volume")?;
        if volume.uuid != uuid {
            return Err(reply.unexpected(&format!("the volume {uuid}")));
        }
        Ok(volume)
    }

    /// Deletes a volume of this owner, with `force` also one that is used. It is gone when [`Volapi::get`] says so.
    pub async fn delete(&self, uuid: &str, owner: &str, force: bool) -> Result<(), Error> {
        let call = Call::new(Method::DELETE, &["volumes", uuid]).query("owner_uuid", owner);
        self.http.execute(call.query("force", force)).await.map(drop)
    }

    /// All reservations.
    pub async fn reservations(&self) -> Result<Vec<Reservation>, Error> {
        let call = Call::get(&["volumereservations"]).timeout(LIST_TIMEOUT).body_cap(LIST_CAP);
        self.http.execute(call).await?.json("an array of reservations")
    }
}
