// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Typed clients for the services that this project speaks to: vminfod on the node itself; NAPI, VMAPI, CNAPI,
//! PAPI, IMGAPI, volapi and the workflow API in the data centre. The crate knows wire formats, retries and errors,
//! and no policy.
//!
//! Where to start: [`vminfod::Vminfod`] answers what this node's VMs are, [`vminfod::watch`] follows every
//! change of them, [`napi::Napi`] and [`vmapi::Vmapi`] read and write the data centre's records.
//! `docs/agents.md` of the repository builds an agent with them, the package `mock-triton` has servers for tests.
//!
//! ```no_run
//! use sdc_clients::napi::Napi;
//! use sdc_clients::vminfod::{VmFields as _, Vminfod};
//! use sdc_clients::{Error, Http};
//!
//! # async fn example() -> Result<(), Error> {
//! let vminfod = Vminfod::new("http://127.0.0.1:9090", "my-agent/1.0")?;
//! let napi = Napi::new(Http::new("http://napi.example.com", "my-agent/1.0")?);
//! for vm in vminfod.vms(false).await?.vms {
//!     for mac in vm.macs() {
//!         println!("{mac} of {:?} is {}", vm.alias(), napi.get_nic(mac).await?.value.state);
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! Modules, highest first; each uses only modules listed below it.

#![forbid(unsafe_code)]
#![warn(missing_docs)] // strangers read them on their own

#[cfg(feature = "fleet")]
pub mod fleet; // the feed of all nodes on NATS JetStream

pub mod migrations; // migrations of VMs between nodes

pub mod snapshots; // snapshots of what is delegated to a VM

pub mod agents; // the migration-agents of the nodes

pub mod agent_status; // what every agent says of itself

pub mod vminfod; // the VMs of this node, and every change of them

pub mod vmapi; // the data centre's records of VMs

pub mod cnapi; // the data centre's records of nodes, its locks and its tasks

pub mod volapi; // shared volumes

pub mod papi; // packages

pub mod imgapi; // images

pub mod workflow; // jobs

pub mod napi; // the data centre's records of NICs and networks

#[cfg(feature = "schema")]
pub mod schema; // schemas of the types above

pub mod restify; // the dialect of Triton's HTTP services, for servers

mod records; // lists in which some records cannot be read

pub mod http; // requests with deadlines, retries and request ids

pub mod retry; // the one retry policy

pub mod identity; // which program a certificate names

mod jitter; // seedable chance

mod mac; // MAC addresses

pub mod shown; // a command that people are shown

mod quoted; // text of others in a message

mod uuids; // uuids as values

mod error; // one error type: what went wrong, and whether to try again

pub use error::{Class, Error, Phase};
pub use http::{Http, Precondition, Versioned};
pub use jitter::Jitter;
pub use mac::{MacAddr, ParseMacError};
pub use quoted::quoted;
pub use records::Unreadable;
pub use uuids::uuid_value;
