// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The pager: every NIC that matches, or an error. A part of a listing must not pass for the whole of
//! it: NICs that are missing from it look deleted. Only single records that cannot be read or served
//! are left out, counted.

use std::collections::HashSet;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use jiff::Timestamp;

use super::types::{Nic, NicQuery};
use crate::error::{Class, Error, Phase};
use crate::http::{Call, Http, LIST_TIMEOUT, Reply};
use crate::mac::MacAddr;
use crate::records::{Unreadable, records};

/// The server's own maximum.
const LARGEST_PAGE: u32 = 1000;
/// A smaller page is not asked for because of a timeout.
const SMALLEST_PAGE: u32 = 100;
/// More than any data centre has: a server whose pages do not end is broken.
const MOST_NICS: u32 = 1_000_000;
/// With more records that the server cannot serve it is the server that is broken.
const MOST_BROKEN: u32 = 64;

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
    /// The records that were left out.
    pub unreadable: Unreadable,
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
    /// The records that were left out.
    pub unreadable: Unreadable,
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
    /// The largest page that does not time out.
    largest: u32,
    limit: u32,
    offset: u32,
    /// A record before this offset makes a page fail.
    broken_before: Option<u32>,
    broken: u32,
    done: bool,
}

/// What came of asking for a page.
enum Asked {
    Page(Box<Reply>),
    /// The one record at the offset cannot be served.
    Broken(Error),
}

impl Pager {
    fn new(http: &Http, list: NicList, query: &NicQuery) -> Pager {
        let largest = query.limit.unwrap_or(LARGEST_PAGE).clamp(1, LARGEST_PAGE);
        Pager {
            http: http.clone(),
            list,
            query: query.clone(),
            seen: HashSet::new(),
            largest,
            limit: largest,
            offset: 0,
            broken_before: None,
            broken: 0,
            done: false,
        }
    }

    async fn next(&mut self) -> Result<Option<NicPage>, Error> {
        if self.done {
            return Ok(None);
        }
        let mut requests = 0;
        let reply = match self.ask(&mut requests).await? {
            Asked::Page(reply) => reply,
            Asked::Broken(error) => {
                let mut unreadable = Unreadable::default();
                unreadable.add(&format!("record {} of the list: {error}", self.offset));
                self.advance(1);
                let page =
                    NicPage { nics: Vec::new(), unreadable, date: None, requests, last: false };
                return Ok(Some(page));
            }
        };
        let (mut nics, unreadable): (Vec<Nic>, _) = records(&reply, "an array of NICs")?;
        let count = u32::try_from(nics.len()).unwrap_or(u32::MAX).saturating_add(unreadable.count);
        if count > self.limit {
            return Err(reply.unexpected(&format!("at most {} NICs", self.limit)));
        }
        let listed = !nics.is_empty();
        nics.retain(|nic| self.seen.insert(nic.mac));
        self.done = count < self.limit;
        if !self.done {
            // A small page repeats when a record before it was just created.
            if listed && nics.is_empty() && self.limit >= SMALLEST_PAGE.min(self.largest) {
                return Err(reply.unexpected("another page than the ones before"));
            }
            self.advance(count);
            if self.offset >= MOST_NICS {
                return Err(reply.unexpected(&format!("fewer than {MOST_NICS} NICs")));
            }
        }
        Ok(Some(NicPage { nics, unreadable, date: reply.date(), requests, last: self.done }))
    }

    /// Moves on by this many records, and chooses the size of the next page: half of a range with
    /// a broken record, the largest page after it.
    fn advance(&mut self, count: u32) {
        self.offset = self.offset.saturating_add(count);
        self.broken_before = self.broken_before.filter(|end| *end > self.offset);
        self.limit = match self.broken_before {
            Some(end) => ((end - self.offset) / 2).max(1),
            None => self.largest,
        };
    }

    /// Asks for the page at the offset: for less of it when that takes too long, and for ever less
    /// of it when the server fails although it serves others.
    async fn ask(&mut self, requests: &mut u32) -> Result<Asked, Error> {
        loop {
            match self.request(self.offset, self.limit, requests).await {
                Ok(reply) => return Ok(Asked::Page(Box::new(reply))),
                Err(e) if e.is_timeout() && self.limit > SMALLEST_PAGE => {
                    self.largest = (self.limit / 2).max(SMALLEST_PAGE);
                    self.limit = self.largest;
                    let (limit, offset) = (self.limit, self.offset);
                    tracing::info!(limit, offset, error = %e, "a page of NAPI's list timed out; asking for less");
                }
                Err(e) if e.class() == Class::Server => {
                    let (limit, offset) = (self.limit, self.offset);
                    if self.broken_before.is_none() || limit == 1 {
                        // A page without records needs the storage and loads none: if that fails,
                        // it is not a record that is broken.
                        self.request(MOST_NICS, 1, requests).await?;
                    }
                    if limit == 1 {
                        self.broken += 1;
                        if self.broken > MOST_BROKEN {
                            return Err(e);
                        }
                        return Ok(Asked::Broken(e));
                    }
                    tracing::debug!(limit, offset, error = %e, "page failed, asking for less");
                    self.broken_before = Some(offset.saturating_add(limit));
                    self.limit = limit / 2;
                }
                Err(e) => return Err(e),
            }
        }
    }

    async fn request(&self, offset: u32, limit: u32, requests: &mut u32) -> Result<Reply, Error> {
        let page = NicQuery { limit: Some(limit), offset: Some(offset), ..self.query.clone() };
        let call = page.apply(Call::get(self.list.segments()).timeout(LIST_TIMEOUT));
        let call = call.final_if(match limit > SMALLEST_PAGE {
            true => |e| e.class() == Class::Server || is_late(e),
            false => |e| e.class() == Class::Server,
        });
        let outcome = self.http.execute(call).await;
        let attempts = outcome.as_ref().map_or_else(Error::attempts, Reply::attempts);
        *requests = requests.saturating_add(attempts);
        outcome
    }
}

/// Returns true for a timeout after the request was sent.
fn is_late(error: &Error) -> bool {
    error.is_timeout() && error.class() != Class::Timeout(Phase::Connect)
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
    let (nics, unreadable) = (Vec::new(), Unreadable::default());
    let mut found = NicPages { nics, unreadable, date: None, requests: 0 };
    while let Some(page) = pager.next().await? {
        found.add(page);
    }
    Ok(found)
}

impl NicPages {
    fn add(&mut self, page: NicPage) {
        self.date = self.date.or(page.date);
        self.requests = self.requests.saturating_add(page.requests);
        self.nics.extend(page.nics);
        self.unreadable.extend(page.unreadable);
    }
}
