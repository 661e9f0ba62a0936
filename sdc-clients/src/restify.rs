// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The dialect of Triton's HTTP services, for programs that serve it.
//!
//! NAPI, VMAPI, CNAPI and the others stand on one HTTP library, restify, and their clients depend on its habits: what
//! becomes of a name that comes twice in a query, that a request id comes back, in which order a 405 lists methods,
//! that a router's own refusals have fewer headers than those of a route. A service states its paths in one table,
//! [`Endpoints`]; what it does with a request is its own.

mod endpoint; // the table of a service's paths

mod answers; // refusals, and the headers of answers

mod params; // parameters, versions, digests

pub use answers::{
    REQUEST_ID, build, dress, no_route, not_allowed, refusal, request_id, wrong_version,
};
pub use endpoint::{Endpoint, Endpoints, Found, Slashes, openapi};
pub use params::{
    BadBody, Params, asked_version, falsy, from_query, gathered, ignored, is_uuid, media_type,
    merge_body, parse_json, version_fits, wrong_digest,
};
