// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The routes, and the forms of answers.

use super::eras::Era;

/// A route with the variable parts of its path, decoded.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Route {
    Ping,
    Nics,
    SearchNics,
    Nic(String),
    Networks,
    Network(String),
    NetworkNics(String),
    Ips(String),
    Ip(String, String),
    Pools,
    Pool(String),
    Tags,
    Tag(String),
    SearchIps,
    Aggregations,
    FabricVlans(String),
    FabricNetworks(String, u16),
}

fn decode(part: &str) -> String {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = tail
            .get(..2)
            .and_then(|h| std::str::from_utf8(h).ok())
            .and_then(|h| u8::from_str_radix(h, 16).ok());
        match (first, hex) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The route of a path, if the era has it.
pub(super) fn find(path: &str, era: Era) -> Option<Route> {
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    if era == Era::Old2015 && parts.iter().any(|part| part.contains(':')) {
        // The old router takes a colon for the start of a variable.
        return None;
    }
    // What comes after the last slash is a part, too: an empty name.
    if path.ends_with('/') && !parts.is_empty() {
        parts.push("");
    }
    match *parts.as_slice() {
        ["ping"] => Some(Route::Ping),
        ["nics"] => Some(Route::Nics),
        ["search", "nics"] if era.has_search_nics() => Some(Route::SearchNics),
        ["search", "ips"] => Some(Route::SearchIps),
        ["nics", mac] => Some(Route::Nic(decode(mac))),
        ["networks"] => Some(Route::Networks),
        ["networks", uuid] => Some(Route::Network(decode(uuid))),
        ["networks", uuid, "nics"] => Some(Route::NetworkNics(decode(uuid))),
        ["networks", uuid, "ips"] => Some(Route::Ips(decode(uuid))),
        ["networks", uuid, "ips", ip] => Some(Route::Ip(decode(uuid), decode(ip))),
        ["network_pools"] => Some(Route::Pools),
        ["network_pools", uuid] => Some(Route::Pool(decode(uuid))),
        ["nic_tags"] => Some(Route::Tags),
        ["nic_tags", name] => Some(Route::Tag(decode(name))),
        ["aggregations"] => Some(Route::Aggregations),
        ["fabrics", owner, "vlans"] if era.has_fabrics() => Some(Route::FabricVlans(decode(owner))),
        ["fabrics", owner, "vlans", vlan, "networks"] if era.has_fabrics() => {
            Some(Route::FabricNetworks(decode(owner), vlan.parse().ok()?))
        }
        _ => None,
    }
}

impl Route {
    /// The methods of the route, in the order the router lists them.
    pub(super) fn methods(&self) -> &'static [&'static str] {
        match self {
            Route::Ping | Route::SearchIps | Route::Aggregations | Route::Pool(_) => {
                &["GET", "HEAD"]
            }
            Route::SearchNics => &["GET"],
            Route::Nics | Route::Networks | Route::Pools | Route::Tags | Route::FabricVlans(_) => {
                &["GET", "HEAD", "POST"]
            }
            Route::FabricNetworks(..) => &["GET", "HEAD", "POST"],
            Route::Nic(_) | Route::Network(_) | Route::Tag(_) => &["GET", "HEAD", "PUT", "DELETE"],
            Route::NetworkNics(_) => &["POST"],
            Route::Ips(_) => &["GET", "HEAD"],
            Route::Ip(..) => &["GET", "HEAD", "PUT"],
        }
    }
}

/// What an `Accept` header is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    /// A text in which the object is lost.
    Octets,
    Refused,
}

/// Returns the form of the answer: the server compares whole media types, parameters included.
pub(super) fn form(accept: &str) -> Form {
    let served = ["", "*/*", "application/*", "application/json"];
    let mut wanted = accept.split(',').map(str::trim);
    match wanted.clone().any(|kind| served.contains(&kind)) {
        true => Form::Json,
        false if wanted.any(|kind| kind == "application/octet-stream") => Form::Octets,
        false => Form::Refused,
    }
}
