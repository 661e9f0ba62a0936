// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is known of volumes without any request: records, rules, the state machine, the reducer. No I/O, no
//! clock; time and chance are handed in.
//!
//! A request becomes parameters (`requests`), a record (`volume`) and the payload of its storage VM (`storage_vm`);
//! what VMAPI says of that VM becomes a fact (`facts`); `reduce` makes of records and a fact what the records should
//! be, by the table of states in `machine`.
//!
//! The modules below are in layer order: each uses only modules listed below it.

#![forbid(unsafe_code)]

pub mod snapshots; // what becomes of a volume's snapshots, and what is asked about them

pub mod history; // what has ended about a volume's snapshots

pub mod reduce; // volumes, reservations, a fact about a VM → what the records should be

pub mod networks; // a volume gets another network, or loses one

pub mod machine; // the state of a volume, as its storage VM drives it

pub mod jobs; // what the job behind a reservation says

pub mod facts; // what a VM's record says

pub mod storage_vm; // what VMAPI is asked to make

pub mod extended; // what only RFD 26 lets creates and updates say

pub mod package; // volume packages

pub mod requests; // the parameters of each route, checked

pub mod list; // which volumes a list has

pub mod predicate; // the predicates of a list

mod checks; // values of parameters, and the refusals of bad ones

pub mod refused; // why a request is refused

pub mod reservation; // the reservation record

pub mod volume; // the volume record

mod state; // the states of a volume

pub mod failure; // why a volume has failed

pub mod snapshot; // a snapshot in it

pub mod script; // how JavaScript spells values
