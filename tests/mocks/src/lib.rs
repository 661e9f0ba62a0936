// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Mock services of a data centre, in memory: what a node's agents talk to.
//! They talk to nothing but their clients. Under `/_mock/` other processes drive them: fault rules,
//! log, seed and dump; `docs/mocks.md` has an example of each.
//!
//! Where to start: [`napi::Server`], [`vmapi::Server`] and the others listen on a socket of a test's own;
//! [`transport::InProcess`] does without one, for tests under tokio's paused clock.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use mocks::napi::{self, NewNic};
//! use sdc_clients::Http;
//! use sdc_clients::napi::Napi;
//!
//! let (vm, cn) = ("40000000-0000-4000-8000-000000000001", "c0000000-0000-4000-8000-000000000001");
//! let mock = napi::Server::start("127.0.0.1:0".parse()?, napi::Options::default()).await?;
//! mock.store().add_nic(NewNic::zone("90:b8:d0:00:00:01", vm, cn))?;
//!
//! let napi = Napi::new(Http::new(&mock.url(), "my-test/1.0")?);
//! let nic = napi.get_nic("90:b8:d0:00:00:01".parse()?).await?;
//! assert_eq!(nic.value.cn_uuid.as_deref(), Some(cn));
//! assert_eq!(mock.requests()[0].headers["user-agent"], "my-test/1.0");
//! # Ok(()) }
//! ```
//!
//! Modules, highest first; each uses only modules listed below it.

#![forbid(unsafe_code)]
#![warn(missing_docs)] // strangers read them on their own

pub mod cli; // the commands `mock-triton`, `testbed napi` and `testbed vmapi`

pub mod vmapi; // the VM records of VMAPI

pub mod cnapi; // nodes, locks and tasks of CNAPI

pub mod papi; // the packages of PAPI

pub mod imgapi; // the images of IMGAPI

pub mod sapi; // applications, services and instances of SAPI

pub mod workflow; // the jobs of the workflow API

mod records; // records by uuid, with the rules and the log of their service

pub mod napi; // the NIC contract of NAPI, in the shapes of several eras

pub mod hub; // what a follower of vminfod sees

pub mod transport; // a mock as an HTTP transport in process, and decorators of transports

pub mod faults; // fault rules, request log and socket, for every mock

mod router; // from a request to a route, for the services that keep records by uuid

mod restify; // what all services have from their HTTP library

mod clock; // the time of a mock
