// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `sdc-voladm`, `sdc-volapi` and `sdc-pkgadm` as programs, against volapi's routes and the mock services.

#![allow(clippy::unwrap_used)] // a test's helpers are tests, which the lint cannot see

mod acts;
mod checks;
mod pkgadm;
mod requests;
mod shown;
mod world;
