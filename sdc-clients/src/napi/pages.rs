// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The pager: every NIC that matches, or an error. A part of a listing must not pass for the whole of
//! it: NICs that are missing from it look deleted.

use std::collections::HashSet;

use ::http::StatusCode;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use jiff::Timestamp;

use super::types::{Nic, NicQuery};
use crate::error::Error;
use crate::http::{Call, Http, LIST_TIMEOUT, Reply};
use crate::mac::MacAddr;

/// The server's own maximum.
const LARGEST_PAGE: u32 = 1000;
const SMALLEST_PAGE: u32 = 100;
/// More than any data centre has: a server whose pages do not end is broken.
const MOST_NICS: u32 = 1_000_000;

/// Which route a listing goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NicList {
    /// `/search/nics`, RFD 58's name; absent from released servers.
    Search,
    /// `/nics`.
    Nics,
}

impl NicList {
    pub(super) fn segments(self) -> &'static [&'static str] {
        match self {
            NicList::Search => &["search", "nics"],
            NicList::Nics => &["nics"],
        }
    }
}

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

/// One page of a listing that is still going on.
#[derive(Debug, Clone, PartialEq)]
pub struct NicPage {
    /// The records that no earlier page had.
    pub nics: Vec<Nic>,
    /// The server's clock when it answered.
    pub date: Option<Timestamp>,
    /// How many requests this page took.
    pub requests: u32,
    /// The listing is complete with this page, and only with such a one.
    pub last: bool,
}

/// The state of a listing.
struct Pager {
    http: Http,
    list: NicList,
    query: NicQuery,
    seen: HashSet<MacAddr>,
    limit: u32,
    offset: u32,
    done: bool,
}

impl Pager {
    fn new(http: &Http, list: NicList, query: &NicQuery) -> Pager {
        Pager {
            http: http.clone(),
            list,
            query: query.clone(),
            seen: HashSet::new(),
            limit: LARGEST_PAGE,
            offset: 0,
            done: false,
        }
    }

    async fn next(&mut self) -> Result<Option<NicPage>, Error> {
        if self.done {
            return Ok(None);
        }
        let (reply, requests) = self.ask().await?;
        let mut nics = read_page(&reply)?;
        let count = u32::try_from(nics.len()).unwrap_or(u32::MAX);
        if count > self.limit {
            return Err(reply.unexpected(&format!("at most {} NICs", self.limit)));
        }
        nics.retain(|nic| self.seen.insert(nic.mac));
        self.done = count < self.limit;
        if !self.done {
            if nics.is_empty() {
                return Err(reply.unexpected("another page than the ones before"));
            }
            self.offset = self.offset.saturating_add(count);
            if self.offset >= MOST_NICS {
                return Err(reply.unexpected(&format!("fewer than {MOST_NICS} NICs")));
            }
        }
        Ok(Some(NicPage { nics, date: reply.date(), requests, last: self.done }))
    }

    /// Asks for the page at the offset, for less and less of it when that takes too long.
    async fn ask(&mut self) -> Result<(Reply, u32), Error> {
        let mut requests = 0u32;
        loop {
            let (limit, offset) = (Some(self.limit), Some(self.offset));
            let page = NicQuery { limit, offset, ..self.query.clone() };
            let mut call = page.apply(Call::get(self.list.segments()).timeout(LIST_TIMEOUT));
            if self.limit > SMALLEST_PAGE {
                call = call.timeouts_final();
            }
            match self.http.execute(call).await {
                Ok(reply) => {
                    requests = requests.saturating_add(reply.attempts());
                    return Ok((reply, requests));
                }
                Err(e) if e.is_timeout() && self.limit > SMALLEST_PAGE => {
                    requests = requests.saturating_add(e.attempts());
                    self.limit = (self.limit / 2).max(SMALLEST_PAGE);
                    let (limit, offset) = (self.limit, self.offset);
                    tracing::info!(limit, offset, error = %e, "page timed out, asking for less");
                }
                Err(e) => return Err(e),
            }
        }
    }
}

/// The pages one by one; the stream ends after a last page or an error.
pub(super) fn stream(
    http: &Http,
    list: NicList,
    query: &NicQuery,
) -> BoxStream<'static, Result<NicPage, Error>> {
    let pager = Pager::new(http, list, query);
    stream::try_unfold(pager, |mut pager| async move {
        Ok(pager.next().await?.map(|page| (page, pager)))
    })
    .boxed()
}

pub(super) async fn all(http: &Http, list: NicList, query: &NicQuery) -> Result<NicPages, Error> {
    let mut pager = Pager::new(http, list, query);
    let mut found = NicPages { nics: Vec::new(), date: None, requests: 0 };
    while let Some(page) = pager.next().await? {
        if found.requests == 0 {
            found.date = page.date;
        }
        found.requests = found.requests.saturating_add(page.requests);
        found.nics.extend(page.nics);
    }
    Ok(found)
}

pub(super) fn read_page(reply: &Reply) -> Result<Vec<Nic>, Error> {
    reply.require(StatusCode::OK)?;
    reply.json("an array of NICs")
}
