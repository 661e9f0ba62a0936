// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! NAPI's list of the NICs with this node's `cn_uuid`: all pages or none. Never a list of the whole
//! data centre: the filter is proved before it is used, and one record of another node voids the
//! answer.

use std::collections::BTreeSet;

use jiff::Timestamp;
use sdc_clients::napi::{BelongsToType, FilterSupport, Napi, Nic, NicList, NicQuery};
use sdc_clients::{Error, MacAddr};

use crate::config::Fallback;

/// One complete list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NicListing {
    pub nics: Vec<Nic>,
    pub date: Option<Timestamp>,
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
        Self { nics, date, listed, listed_vms, whole: true }
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
}

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// This NAPI cannot filter by `cn_uuid` (R4).
    #[error("NAPI cannot list the NICs of one node: {0}")]
    Unsupported(#[source] Unsupported),
    #[error("NAPI's filtered list holds {mac} of node {cn}: the whole answer is void")]
    Foreign { mac: MacAddr, cn: String },
    #[error("NAPI's list")]
    Request(#[source] Error),
}

/// Reads all pages: `/search/nics` first (R3), then what `fallback` allows.
///
/// # Errors
/// If NAPI cannot filter, does not honour the filter, or any page fails.
pub async fn list(napi: &Napi, cn_uuid: &str, fallback: Fallback) -> Result<NicListing, ListError> {
    if cn_uuid.is_empty() {
        return Err(ListError::Unsupported(Unsupported::NoCnUuid));
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
        return Err(ListError::Foreign {
            mac: nic.mac,
            cn: nic.cn_uuid.clone().unwrap_or_default(),
        });
    }
    Ok(NicListing::new(pages.nics, pages.date))
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
