// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The events of a watcher, and the VMs in them.

use std::sync::Arc;

use super::types::{Change, VmObject};
use crate::error::Error;

/// An event of a watcher. Where there is more to say than one thing, it has names. Later versions may add
/// events: a consumer ignores those that it does not know.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum WatchEvent {
    /// Everything there is, as of now. After a reconnect, what it changes was said before it.
    Synced(Vec<Arc<Vm>>),
    /// A VM is new.
    Created(Arc<Vm>),
    /// A VM changed.
    #[non_exhaustive]
    Modified {
        /// The VM now.
        vm: Arc<Vm>,
        /// The VM as it was last known.
        old: Arc<Vm>,
        /// What the service says changed; empty where it was found by comparison.
        changes: Vec<Change>,
    },
    /// A VM is gone: it as it was last known.
    Deleted(Arc<Vm>),
    /// A VM is to be left out of the inventory from now on (`do_not_inventory`); it still exists.
    Hidden(Arc<Vm>),
    /// A VM is to be in the inventory again.
    Shown(Arc<Vm>),
    /// The stream broke: the view is stale until the next `Synced`. Said once per attempt.
    Lost(Error),
}

/// A VM as the watcher knows it: its object, and which of all VMs that ever had its name it is.
///
/// ```
/// use sdc_clients::vminfod::{Vm, VmFields};
///
/// fn is_lx(vm: &Vm) -> bool {
///     vm.brand() == Some("lx")
/// }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Vm {
    pub(super) object: VmObject,
    pub(super) incarnation: u64,
}

impl Vm {
    /// The whole object.
    pub fn object(&self) -> &VmObject {
        &self.object
    }

    /// Counts the VMs that this watcher saw come into being: a VM that is deleted and created again
    /// under one uuid is two. It stays while the VM changes, and means nothing to another watcher.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }
}

impl std::ops::Deref for Vm {
    type Target = VmObject;

    fn deref(&self) -> &VmObject {
        &self.object
    }
}

impl serde::Serialize for Vm {
    /// As its object.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.object.serialize(serializer)
    }
}
