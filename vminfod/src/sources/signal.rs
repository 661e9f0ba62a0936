// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The signals of the sources.

use std::sync::Arc;

use vm_model::parse::sysevent::ZoneEvent;
use vm_model::parse::zfs_event::DatasetEvent;
use vm_model::stale::ZoneFile;

/// Something may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A zone sysevent.
    Zone(ZoneEvent),
    /// A ZFS sysevent.
    Dataset(DatasetEvent),
    /// A file of a zone: its name and which one.
    File(Arc<str>, ZoneFile),
    /// The files of this zone were not watched before: compare their stamps.
    Unwatched(String),
    /// No file was watched before: compare all stamps.
    AllUnwatched,
    /// The zone index, or the directory it is in.
    Index,
    /// `/tmp/.sysinfo.json`
    Sysinfo,
    /// Signals were lost: anything may have changed.
    Everything,
}
