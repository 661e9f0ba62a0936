// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mock NAPI: the routes of NICs, networks, pools and addresses, in memory, as NAPIs of several
//! ages answer them.

mod server; // on a socket

mod outages; // the outages of the storage, as fault rules

mod handler; // the way of a request: faults, routing, checks, the operation, headers

mod admin; // the routes under /_mock/ that only NAPI has

mod seed; // the records of a data centre to start with

mod update; // changing a NIC

mod nics; // creating, finding and deleting NICs

mod list; // the NIC list: known parameters, matching records, pages

mod addresses; // the address routes

mod networks; // networks, pools, NIC tags and fabrics

mod render; // records as the JSON that NAPI answers with

mod ips; // which address of a network comes next, who holds one

mod store; // the records, behind one lock

mod table; // the NICs, indexed

mod rows; // the rows: NICs, networks, addresses

mod subnet; // address ranges

mod options; // how a mock is set up

mod params; // the checks on one parameter

mod routes; // the routes

mod answers; // the ping, a foreign record

mod errors; // error answers

mod etag; // entity tags and the two conditional headers

mod mac; // MAC addresses as NAPI keeps them

mod eras; // the ages of NAPI, and their differences

pub use eras::Era;
pub use options::Options;
pub use outages::{database_gone, storage_hangs};
pub use seed::{NewNic, SeedFile};
pub use server::Server;
pub use store::Store;
