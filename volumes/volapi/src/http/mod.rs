// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! volapi's routes, with the forms and texts of the deployed service.

mod routes; // the answer of each route

mod snapshots; // what RFD 26 has for snapshots

mod packages; // volume packages

mod networks; // a volume gets another network, or loses one

mod endpoints; // the table of its paths

mod answer; // answers with their headers

mod accept; // what a request takes for an answer

mod params; // what a request asks with

pub use endpoints::{ENDPOINTS, document};
pub use routes::router;
