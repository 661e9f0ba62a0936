// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mock NAPI: the routes of NICs, networks, pools and addresses, in memory, as NAPIs of several
//! ages answer them.

mod addresses;
mod admin;
mod answers;
mod digest;
mod eras;
mod errors;
mod etag;
mod handler;
mod ips;
mod list;
mod mac;
mod networks;
mod nics;
pub(crate) mod params;
mod render;
mod routes;
mod seed;
mod server;
mod store;
mod table;
mod update;

pub use eras::Era;
pub use seed::{NewNic, SeedFile};
pub use server::{Options, Server};
pub use store::Store;
