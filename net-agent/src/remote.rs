// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What NAPI says: all pages of the NICs with our `cn_uuid`, complete or void. Never a list of
//! the whole data centre: the filter is proved before it is relied on, and one record of another
//! node voids the answer.

use jiff::Timestamp;
use sdc_clients::napi::{BelongsToType, FilterSupport, Napi, Nic, NicList, NicQuery};
use sdc_clients::{Error, MacAddr};

use crate::config::Fallback;

/// One complete list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemoteView {
    /// The records.
    pub nics: Vec<Nic>,
    /// NAPI's clock when it was read.
    pub date: Option<Timestamp>,
    /// Records of zones in the whole list: what is left of it later may be fewer.
    pub listed: usize,
    /// Is this the whole list, or what is left of it to decide?
    pub whole: bool,
}

impl RemoteView {
    /// A list read at `date`.
    pub fn new(nics: Vec<Nic>, date: Option<Timestamp>) -> Self {
        let listed = nics.iter().filter(|nic| nic.belongs_to_type == BelongsToType::Zone).count();
        Self { nics, date, listed, whole: true }
    }
}

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// This NAPI cannot filter by `cn_uuid` (R4).
    #[error("NAPI cannot list the NICs of one node: {0}")]
    Unsupported(String),
    /// The filter was not honoured.
    #[error("NAPI's filtered list holds {mac} of node {cn:?}: the whole answer is void")]
    Foreign {
        /// The record.
        mac: MacAddr,
        /// Its node.
        cn: Option<String>,
    },
    /// A request failed.
    #[error("NAPI's list")]
    Request(#[source] Error),
}

/// Reads all pages: `/search/nics` first (R3), then what `fallback` allows.
///
/// # Errors
/// As [`ListError`] says; any failed page voids all.
pub async fn list(napi: &Napi, cn_uuid: &str, fallback: Fallback) -> Result<RemoteView, ListError> {
    if cn_uuid.is_empty() {
        return Err(ListError::Unsupported("no cn_uuid to ask for".to_owned()));
    }
    let query = NicQuery { cn_uuid: vec![cn_uuid.to_owned()], ..NicQuery::default() };
    let pages = match napi.all_nics(NicList::Search, &query).await {
        Ok(pages) => pages,
        Err(err) if err.is_not_found_route() => {
            proved(napi, cn_uuid, fallback).await?;
            napi.all_nics(NicList::Nics, &query).await.map_err(unsupported_or)?
        }
        Err(err) => return Err(unsupported_or(err)),
    };
    if let Some(nic) = pages.nics.iter().find(|nic| nic.cn_uuid.as_deref() != Some(cn_uuid)) {
        return Err(ListError::Foreign { mac: nic.mac, cn: nic.cn_uuid.clone() });
    }
    Ok(RemoteView::new(pages.nics, pages.date))
}

async fn proved(napi: &Napi, cn_uuid: &str, fallback: Fallback) -> Result<(), ListError> {
    if fallback == Fallback::Never {
        return Err(ListError::Unsupported("it has no /search/nics".to_owned()));
    }
    match napi.probe_cn_uuid_filter(cn_uuid).await.map_err(ListError::Request)? {
        FilterSupport::Supported => Ok(()),
        FilterSupport::Unsupported => {
            Err(ListError::Unsupported("/nics does not take cn_uuid".to_owned()))
        }
        FilterSupport::Lenient => {
            Err(ListError::Unsupported("/nics ignores what it does not know".to_owned()))
        }
    }
}

fn unsupported_or(err: Error) -> ListError {
    if err.status() == Some(422) {
        return ListError::Unsupported(daemon::log::chain(&err));
    }
    ListError::Request(err)
}
