// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The pager: every NIC that matches, or an error. A part of a listing must
//! never pass for the whole of it, since whoever is missing looks deleted.

use std::collections::HashSet;

use jiff::Timestamp;

use super::types::{Nic, NicQuery};
use super::{NicList, read_page};
use crate::error::Error;
use crate::http::{Call, Http, LIST_TIMEOUT};
use crate::mac::MacAddr;

/// The server's own maximum.
const LARGEST_PAGE: u32 = 1000;
const SMALLEST_PAGE: u32 = 100;
/// A server whose pages never end is broken.
const MOST_NICS: u32 = 1_000_000;

/// A complete listing.
#[derive(Debug, Clone, PartialEq)]
pub struct NicPages {
    /// The records, each MAC once, in the order they came.
    pub nics: Vec<Nic>,
    /// The server's clock at the first page: nothing here is older.
    pub date: Option<Timestamp>,
    /// How many requests it took.
    pub requests: u32,
}

pub(super) async fn all(http: &Http, list: NicList, query: &NicQuery) -> Result<NicPages, Error> {
    let mut found = NicPages { nics: Vec::new(), date: None, requests: 0 };
    let mut seen: HashSet<MacAddr> = HashSet::new();
    let (mut limit, mut offset) = (LARGEST_PAGE, 0u32);
    loop {
        let page = NicQuery { limit: Some(limit), offset: Some(offset), ..query.clone() };
        let mut call = page.apply(Call::get(list.segments()).timeout(LIST_TIMEOUT));
        if limit > SMALLEST_PAGE {
            call = call.timeouts_final();
        }
        let reply = match http.execute(call).await {
            Ok(reply) => reply,
            Err(e) if e.is_timeout() && limit > SMALLEST_PAGE => {
                found.requests = found.requests.saturating_add(e.attempts());
                limit = (limit / 2).max(SMALLEST_PAGE);
                tracing::info!(limit, offset, error = %e, "page timed out, asking for less");
                continue;
            }
            Err(e) => return Err(e),
        };
        found.requests = found.requests.saturating_add(reply.attempts());
        if offset == 0 {
            found.date = reply.date();
        }
        let nics = read_page(&reply)?;
        let count = u32::try_from(nics.len()).unwrap_or(u32::MAX);
        if count > limit {
            return Err(reply.unexpected(&format!("at most {limit} NICs")));
        }
        let before = found.nics.len();
        found.nics.extend(nics.into_iter().filter(|nic| seen.insert(nic.mac)));
        if count < limit {
            return Ok(found);
        }
        if found.nics.len() == before {
            return Err(reply.unexpected("another page than the ones before"));
        }
        offset = offset.saturating_add(count);
        if offset >= MOST_NICS {
            return Err(reply.unexpected(&format!("fewer than {MOST_NICS} NICs")));
        }
    }
}
