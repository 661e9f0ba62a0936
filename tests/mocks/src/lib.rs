// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Mock services of a data centre, in memory: what a node's agents talk to.
//! They talk to nothing but their clients. Under `/_mock/` other processes drive them: fault rules,
//! log, seed and dump.
//!
//! Modules, highest first; each uses only modules listed below it.

#![forbid(unsafe_code)]

pub mod cli; // the commands `mock-triton`, `testbed napi` and `testbed vmapi`

pub mod vmapi; // the VM records of VMAPI

pub mod napi; // the NIC contract of NAPI, in the shapes of several eras

pub mod transport; // a mock as an HTTP transport in process, and decorators of transports

pub mod faults; // fault rules, request log and socket, for every mock

mod restify; // what both services have from their HTTP library

mod clock; // the time of a mock
