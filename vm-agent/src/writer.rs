// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! VMAPI for writes. The only caller of its PUTs; each takes a permit of the frame's gate.

use daemon::agent::Permit;
use sdc_clients::Error;
use sdc_clients::vmapi::Vmapi;
use serde_json::{Map, Value};

/// What is said of one VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// What the node shows.
    Present,
    /// That it is destroyed.
    Destroyed,
}

impl Says {
    /// Returns its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Present => "put",
            Self::Destroyed => "destroyed",
        }
    }
}

/// The record of one VM.
#[derive(Debug)]
pub(crate) struct One(pub String);

/// The records of several VMs of this node.
#[derive(Debug)]
pub(crate) struct Many(pub String);

/// VMAPI for writes.
#[derive(Clone)]
pub struct Writer(Vmapi);

impl Writer {
    /// Writes through this client, which must not retry.
    pub(crate) fn new(vmapi: Vmapi) -> Self {
        Self(vmapi)
    }

    /// Returns the PUT of one record.
    pub(crate) fn put<'a>(
        &'a self,
        permit: Permit<'_, One>,
        object: &'a Map<String, Value>,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<'a> {
        let One(vm) = permit.spend();
        async move { self.0.put_vm(&vm, object).await }
    }

    /// Returns the PUT of several records.
    pub(crate) fn put_many<'a>(
        &'a self,
        permit: Permit<'_, Many>,
        objects: &'a Map<String, Value>,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<'a> {
        let Many(cn_uuid) = permit.spend();
        async move { self.0.put_vms(&cn_uuid, objects).await }
    }
}
