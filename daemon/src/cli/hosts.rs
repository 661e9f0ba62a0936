// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The host names of nodes, as CNAPI has them: in tables, in sentences, and as people type them.

use std::collections::BTreeMap;

use sdc_clients::Error;
use sdc_clients::cnapi::{Cnapi, ServerQuery};
use sdc_clients::uuid_value;

use super::names::{Kind, find_kind};
use super::program::Usage;
use super::screen::visible;

const NODE: Kind = Kind { one: "node", name: "host name" };

/// The host names of nodes by uuid.
#[derive(Debug, Clone, Default)]
pub struct Hosts(BTreeMap<String, String>);

impl Hosts {
    /// Returns those of which there is one.
    pub fn of(named: impl Iterator<Item = (String, String)>) -> Hosts {
        let named = named.filter(|(_, name)| !name.is_empty());
        Hosts(named.map(|(uuid, name)| (uuid, visible(&name))).collect())
    }

    /// Asks CNAPI for all.
    /// Fails if it does not answer.
    pub async fn read(cnapi: &Cnapi) -> Result<Hosts, Error> {
        let servers = cnapi.list_servers(&ServerQuery::default()).await?;
        Ok(Hosts::of(servers.into_iter().filter_map(|it| Some((it.uuid, it.hostname?)))))
    }

    /// Returns the host name of a node.
    pub fn known(&self, uuid: &str) -> Option<&str> {
        self.0.get(uuid).map(String::as_str)
    }

    /// Returns how people call a node; one of an unknown name by its uuid.
    pub fn name<'a>(&'a self, uuid: &'a str) -> &'a str {
        self.known(uuid).unwrap_or(uuid)
    }

    /// Returns a sentence with names in place of the uuids of nodes.
    pub fn in_text(&self, text: &str) -> String {
        let named = self.0.iter().filter(|(uuid, _)| text.contains(uuid.as_str()));
        named.fold(text.to_owned(), |text, (uuid, name)| text.replace(uuid.as_str(), name))
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
        Err(_) => Err(Usage(format!("{typed:?} is not the uuid of a node"))),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_has_the_names_of_its_nodes() {
        let named = [("aaaa-1", "ha"), ("bbbb-2", "")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        let hosts = Hosts::of(named.into_iter());
        assert_eq!(hosts.in_text("aaaa-1: no room; bbbb-2: none"), "ha: no room; bbbb-2: none");
        assert_eq!((hosts.name("aaaa-1"), hosts.name("bbbb-2")), ("ha", "bbbb-2"));
    }
}
