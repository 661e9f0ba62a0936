// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Finds whether a NAPI filters by `cn_uuid`. A strict server lists the parameters that it does not know, so
//! a request with `cn_uuid` and a nonsense parameter shows whether it knows the former. A server that
//! answers ignores unknown parameters.

use crate::error::Error;
use crate::http::{Call, Http};

/// Whether a listing can be narrowed to one compute node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FilterSupport {
    /// `/nics?cn_uuid=` filters.
    Supported,
    /// The server refuses `cn_uuid`.
    Unsupported,
    /// The server ignores what it does not know: its answers are not filtered.
    Lenient,
}

const NONSENSE: &str = "no_such_parameter";

pub(super) async fn cn_uuid_filter(http: &Http, cn_uuid: &str) -> Result<FilterSupport, Error> {
    let call = Call::get(&["nics"]).query("cn_uuid", cn_uuid).query("limit", 1).query(NONSENSE, 1);
    let error = match http.execute(call).await {
        Ok(reply) => {
            reply.json::<Vec<serde::de::IgnoredAny>>("an array of NICs")?;
            return Ok(FilterSupport::Lenient);
        }
        Err(error) => error,
    };
    let support = match error.unknown_parameters() {
        Some(names) if names.contains(&"cn_uuid") => Some(FilterSupport::Unsupported),
        Some(names) if names.contains(&NONSENSE) => Some(FilterSupport::Supported),
        _ => None,
    };
    support.ok_or(error)
}
