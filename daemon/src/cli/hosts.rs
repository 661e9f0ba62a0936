// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The host names of nodes, as CNAPI has them: in tables, in sentences, and as people type them.

use sdc_clients::cnapi::{Cnapi, ServerQuery};
use sdc_clients::uuid_value;
use sdc_clients::{Error, quoted};

use super::names::{Kind, Names, find_kind};
use super::program::Usage;

const NODE: Kind = Kind { one: "node", name: "host name" };

/// The host names of nodes by uuid.
pub type Hosts = Names;

impl Hosts {
    /// Asks CNAPI for all.
    /// Fails if it does not answer.
    pub async fn read(cnapi: &Cnapi) -> Result<Hosts, Error> {
        let servers = cnapi.list_servers(&ServerQuery::default()).await?;
        Ok(Hosts::of(servers.into_iter().filter_map(|it| Some((it.uuid, it.hostname?)))))
    }
}

/// Finds a node by its uuid, a beginning of it, or its host name.
/// Fails if CNAPI does not answer, or has no such node: the nearest name is offered.
pub async fn node(cnapi: &Cnapi, typed: &str) -> Result<String, Unknown> {
    if let Ok(uuid) = whole(typed) {
        match cnapi.get_server(&uuid).await {
            Err(error) if error.is_not_found_resource() => {}
            _ => return Ok(uuid),
        }
    }
    let servers = cnapi.list_servers(&ServerQuery::default()).await?;
    let names = servers.iter().map(|it| (&*it.uuid, it.hostname.as_deref().unwrap_or_default()));
    let known: Vec<(&str, &str)> = names.collect();
    Ok(find_kind(NODE, &known, typed)?)
}

/// Returns a node's uuid.
/// Fails if it is none.
pub fn whole(typed: &str) -> Result<String, Usage> {
    match uuid::Uuid::try_parse(typed) {
        Ok(_) => Ok(uuid_value(typed)),
        Err(_) => Err(Usage(format!("{} is not the uuid of a node", quoted(typed)))),
    }
}

/// Why a node was not found.
#[derive(Debug, thiserror::Error)]
pub enum Unknown {
    /// No node is called so, or several are.
    #[error(transparent)]
    Name(#[from] Usage),
    /// CNAPI does not answer, or refuses.
    #[error("CNAPI")]
    Cnapi(#[from] Error),
}
