// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What deployed clients and users rely on: each test has the number of its statement in
//! `docs/contract/vminfod.md` beside it (`S17`), and of the bug of the deployed daemon that it rules
//! out (`B6`).

mod arrays;
mod changes;
mod files;
mod hour;
mod http;
mod incomplete;
mod life;
mod repair;
mod same_uuid;
mod slow_zfs;
mod sources;
mod status;
mod stream;
mod zfs;
