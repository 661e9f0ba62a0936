// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! volapi: shared volumes (RFD 26). A volume is one NFS export of a storage VM, which VMAPI makes for it on fabric
//! networks of its owner. What the records say and should say is decided in `volumes-core`; here they are stored, and the
//! other services asked.
//!
//! The way of a volume: `http` checks a request; `service` (`create.rs`) writes the record in state `creating` and has
//! VMAPI make the storage VM; `updater` learns from VMAPI's changefeed that it runs, and `service` (`follow.rs`) has
//! `volumes_core::reduce` say what becomes of the records: the volume is `ready`. The
//! reducer removes a deleted volume's record once VMAPI has destroyed the VM.
//!
//! The modules below are in layer order: each uses only modules listed below it.
//!
//! | task | is woken by | does |
//! | --- | --- | --- |
//! | http | a connection | answers clients; each request runs to its end in a task of its own |
//! | updater: lead | VMAPI's changefeed | with the lease: reads VMs |
//! | updater: lead | every 10 s | with the lease: reads stopped storage VMs, finishes changes of networks and the work that dead instances left |
//! | updater: lead | every 60 s | with the lease: reads jobs of reservations, archives old failures |
//! | updater: tidy | every 10 s, every second of a roll-back, a change of snapshots | finishes snapshots, roll-backs and the work that earlier runs of this instance left |
//! | updater: images | every 60 s until all are there | has the images of storage VMs imported |
//! | probes | every 20 s, with the lease | calls the NFS servers of storage VMs |
//! | trust | a certificate that is due | renews this program's certificate |
//! | status, metrics | a connection | answers |

#![forbid(unsafe_code)]

pub mod cli; // the command line

pub mod pages; // what the operator sees

pub mod probes; // storage VMs that run but do not serve

pub mod updater; // what runs without being asked

pub mod http; // its routes

pub mod config; // the configuration

pub mod service; // what volapi does, over its records and the other services

pub mod records; // the records in the store

pub mod peers; // what is asked of the other services

mod nfs; // whether an NFS server serves
