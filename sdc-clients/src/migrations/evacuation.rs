// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Evacuations of nodes, as migration-service keeps them.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::client::Migrations;
use crate::error::Error;
use crate::http::Call;

/// An evacuation that is under way. What is not known is absent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evacuation {
    /// The node.
    pub cn_uuid: String,
    /// The node was reserved before, and stays so.
    pub was_reserved: bool,
    /// The node gets no new VMs.
    pub is_reserved: bool,
    /// Nothing is begun, and what syncs is paused.
    pub paused: bool,
    /// When it began, as ISO 8601.
    pub began: String,
    /// When the service last carried it on.
    pub seen: String,
    /// Who began it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Through which program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// All of its VMs go there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// These VMs stay where they are.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub excluded: BTreeSet<String>,
    /// At most so many move at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u32>,
    /// The VMs whose migration it has begun or resumed: empty, or why that was refused.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tried: BTreeMap<String, String>,
    /// VMs that have moved, that stay, and that are still to move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[allow(missing_docs)] // see above
    pub stay: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[allow(missing_docs)] // see above
    pub left: Option<u64>,
}

impl Migrations {
    /// Returns the evacuations that are under way.
    pub async fn evacuations(&self) -> Result<Vec<Evacuation>, Error> {
        self.http().execute(Call::get(&["evacuations"])).await?.json("an array of evacuations")
    }

    /// Returns the evacuation of a node; none if none is under way.
    pub async fn evacuation(&self, cn: &str) -> Result<Option<Evacuation>, Error> {
        match self.http().execute(Call::get(&["evacuations", cn])).await {
            Err(error) if error.is_not_found_resource() => Ok(None),
            answer => answer?.json("an evacuation").map(Some),
        }
    }

    /// Begins the evacuation of a node, or changes what is named of it.
    pub async fn put_evacuation(
        &self,
        cn: &str,
        values: &Map<String, Value>,
    ) -> Result<Evacuation, Error> {
        let call = Call::new(Method::PUT, &["evacuations", cn]).json(values);
        self.http().execute(call).await?.json("an evacuation")
    }

    /// Ends the evacuation of a node, which the history has from then on.
    pub async fn end_evacuation(&self, cn: &str) -> Result<(), Error> {
        self.http().execute(Call::new(Method::DELETE, &["evacuations", cn])).await?;
        Ok(())
    }
}
