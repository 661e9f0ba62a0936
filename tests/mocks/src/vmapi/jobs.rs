// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Who makes and deletes VMs, since VMAPI itself only orders it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

use crate::workflow;

/// What a job is to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// `create`, `delete`, or an action: `start`, `stop`, `reboot`, `reprovision`, `add_nics`, `remove_nics`; `update`
    /// for a change of metadata or tags.
    pub verb: &'static str,
    /// The VM.
    pub vm_uuid: String,
    /// The node.
    pub server_uuid: String,
    /// What was asked for, or the record of the VM that is to go.
    pub vm: Map<String, Value>,
}

/// Carries out an order, or says why it failed.
pub type Hands = Arc<dyn Fn(Order) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Where jobs are kept, and who carries them out.
#[derive(Default)]
pub(super) struct Work {
    pub(super) jobs: Option<workflow::Store>,
    pub(super) hands: Option<Hands>,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("jobs", &self.jobs).finish_non_exhaustive()
    }
}
