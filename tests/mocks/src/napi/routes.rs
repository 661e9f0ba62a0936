// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The routes, and the forms of answers.

use super::eras::Era;
use crate::restify::{Endpoint, Endpoints, Found, Slashes};

/// What a path is about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Route {
    Ping,
    Nics,
    SearchNics,
    Nic,
    Networks,
    Network,
    NetworkNics,
    Ips,
    Ip,
    Pools,
    Pool,
    Tags,
    Tag,
    SearchIps,
    Aggregations,
    FabricVlans,
    FabricNetworks,
}

const ENDPOINTS: Endpoints<Route> = Endpoints {
    all: &[
        Endpoint::new("/ping", "GET, HEAD", Route::Ping),
        Endpoint::new("/nics", "GET, HEAD, POST", Route::Nics),
        Endpoint::new("/search/nics", "GET", Route::SearchNics),
        Endpoint::new("/search/ips", "GET, HEAD", Route::SearchIps),
        Endpoint::new("/nics/{mac?}", "GET, HEAD, PUT, DELETE", Route::Nic),
        Endpoint::new("/networks", "GET, HEAD, POST", Route::Networks),
        Endpoint::new("/networks/{uuid?}", "GET, HEAD, PUT, DELETE", Route::Network),
        Endpoint::new("/networks/{uuid}/nics", "POST", Route::NetworkNics),
        Endpoint::new("/networks/{uuid}/ips", "GET, HEAD", Route::Ips),
        Endpoint::new("/networks/{uuid}/ips/{ip?}", "GET, HEAD, PUT", Route::Ip),
        Endpoint::new("/network_pools", "GET, HEAD, POST", Route::Pools),
        Endpoint::new("/network_pools/{uuid?}", "GET, HEAD", Route::Pool),
        Endpoint::new("/nic_tags", "GET, HEAD, POST", Route::Tags),
        Endpoint::new("/nic_tags/{name?}", "GET, HEAD, PUT, DELETE", Route::Tag),
        Endpoint::new("/aggregations", "GET, HEAD", Route::Aggregations),
        Endpoint::new("/fabrics/{owner}/vlans", "GET, HEAD, POST", Route::FabricVlans),
        Endpoint::new(
            "/fabrics/{owner}/vlans/{vlan}/networks",
            "GET, HEAD, POST",
            Route::FabricNetworks,
        ),
    ],
    slashes: Slashes::Dropped,
};

/// The route of a path, if the era has it.
pub(super) fn find(path: &str, era: Era) -> Option<Found<Route>> {
    if era == Era::Old2015 && path.contains(':') {
        // The old router takes a colon for the start of a variable.
        return None;
    }
    ENDPOINTS.find(path).filter(|found| match found.endpoint.route {
        Route::SearchNics => era.has_search_nics(),
        Route::FabricVlans => era.has_fabrics(),
        Route::FabricNetworks => era.has_fabrics() && found.part("vlan").parse::<u16>().is_ok(),
        _ => true,
    })
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
