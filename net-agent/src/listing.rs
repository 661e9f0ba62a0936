// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! NAPI's list of the NICs with this node's `cn_uuid`: all pages or none. Never a list of the whole
//! data centre: the filter is proved before it is used, and one record of another node voids the
//! answer and ends the reading. Records that cannot be read are left out and counted.

use std::collections::BTreeSet;

use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use sdc_clients::Unreadable;
use sdc_clients::napi::{BelongsToType, FilterSupport, Napi, Nic, NicList, NicQuery};
use sdc_clients::{Error, MacAddr};

use crate::config::Fallback;

/// One complete list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NicListing {
    pub nics: Vec<Nic>,
    pub date: Option<Timestamp>,
    /// Records of the list that could not be read.
    pub unreadable: Unreadable,
    /// The number of zone records in the whole list.
    pub listed: usize,
    /// The number of VMs that these belong to.
    pub listed_vms: usize,
    /// True for the whole list, false for what is left of it to decide.
    pub whole: bool,
}

impl NicListing {
    /// A list read at `date`.
    pub fn new(nics: Vec<Nic>, date: Option<Timestamp>) -> Self {
        let zones = || nics.iter().filter(|nic| nic.belongs_to_type == BelongsToType::Zone);
        let vms: BTreeSet<&str> = zones().map(|nic| nic.belongs_to_uuid.as_str()).collect();
        let (listed, listed_vms) = (zones().count(), vms.len());
        let unreadable = Unreadable::default();
        Self { nics, date, unreadable, listed, listed_vms, whole: true }
    }
}

/// Why NAPI cannot filter by `cn_uuid`. Which answer means what is decided in `sdc_clients`.
#[derive(Debug, thiserror::Error)]
pub enum Unsupported {
    /// The configured `cn_uuid` is empty.
    #[error("there is no cn_uuid to ask for")]
    NoCnUuid,
    /// 404, and the fallback is off.
    #[error("it has no /search/nics")]
    NoSearch,
    /// `/nics` refuses the filter.
    #[error("/nics refuses cn_uuid")]
    NoFilter,
    /// `/nics` ignores the filter.
    #[error("/nics ignores unknown parameters")]
    Lenient,
    /// 422.
    #[error("it refuses the query")]
    Refused(#[source] Box<Error>),
    /// The filter was ignored, or not kept.
    #[error("its filtered list holds {mac} of node {cn:?}, and the whole answer is void")]
    Foreign {
        /// The first record that is not this node's.
        mac: MacAddr,
        /// The beginning of its `cn_uuid`, empty if it has none.
        cn: String,
    },
}

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// This NAPI cannot filter by `cn_uuid` (R4).
    #[error("NAPI cannot list the NICs of one node: {0}")]
    Unsupported(#[source] Unsupported),
    #[error("NAPI's list")]
    Request(#[source] Error),
}

/// Reads all pages: `/search/nics` first (R3), then what `fallback` allows.
/// Fails if NAPI cannot filter, does not honour the filter, or any page fails.
pub async fn list(napi: &Napi, cn_uuid: &str, fallback: Fallback) -> Result<NicListing, ListError> {
    if cn_uuid.is_empty() {
        return Err(ListError::Unsupported(Unsupported::NoCnUuid));
    }
    let query = NicQuery { cn_uuid: vec![cn_uuid.to_owned()], ..NicQuery::default() };
    match pages(napi, NicList::Search, &query, cn_uuid).await {
        Err(ListError::Request(err)) if err.is_not_found_route() => {
            proved(napi, cn_uuid, fallback).await?;
            pages(napi, NicList::Nics, &query, cn_uuid).await
        }
        found => found,
    }
}

/// Reads pages up to the last one, or to the first record of another node.
async fn pages(
    napi: &Napi,
    list: NicList,
    query: &NicQuery,
    cn_uuid: &str,
) -> Result<NicListing, ListError> {
    let (mut nics, mut unreadable, mut date) = (Vec::new(), Unreadable::default(), None);
    let mut pages = napi.nic_pages(list, query);
    while let Some(page) = pages.try_next().await.map_err(unsupported_or)? {
        date = date.or(page.date);
        unreadable.extend(page.unreadable);
        for nic in page.nics {
            match whose(&nic, cn_uuid) {
                Whose::Ours => nics.push(nic),
                Whose::Unknown(why) => unreadable.add(&format!("{}: {why}", nic.mac)),
                Whose::Foreign(cn) => {
                    let (mac, cn) = (nic.mac, cn.chars().take(36).collect());
                    return Err(ListError::Unsupported(Unsupported::Foreign { mac, cn }));
                }
            }
        }
    }
    Ok(NicListing { unreadable, ..NicListing::new(nics, date) })
}

/// The node of a record.
enum Whose {
    Ours,
    /// Another node, or none: the filter was ignored.
    Foreign(String),
    /// Its `cn_uuid` is no uuid.
    Unknown(String),
}

fn whose(nic: &Nic, cn_uuid: &str) -> Whose {
    match &nic.cn_uuid {
        Some(cn) if cn == cn_uuid => Whose::Ours,
        Some(cn) if uuid::Uuid::try_parse(cn).is_err() => Whose::Unknown(format!("cn_uuid {cn:?}")),
        Some(cn) => Whose::Foreign(cn.clone()),
        None => Whose::Foreign(String::new()),
    }
}

async fn proved(napi: &Napi, cn_uuid: &str, fallback: Fallback) -> Result<(), ListError> {
    if fallback == Fallback::Never {
        return Err(ListError::Unsupported(Unsupported::NoSearch));
    }
    match napi.probe_cn_uuid_filter(cn_uuid).await.map_err(ListError::Request)? {
        FilterSupport::Supported => Ok(()),
        FilterSupport::Unsupported => Err(ListError::Unsupported(Unsupported::NoFilter)),
        FilterSupport::Lenient => Err(ListError::Unsupported(Unsupported::Lenient)),
    }
}

fn unsupported_or(err: Error) -> ListError {
    if err.status() == Some(422) {
        return ListError::Unsupported(Unsupported::Refused(Box::new(err)));
    }
    ListError::Request(err)
}
