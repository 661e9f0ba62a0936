// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What `zfs` and `zpool` of the node say and do. What they cannot do is found out by asking them, so that
//! illumos and zfs-fuse both work; what is changed is read again by its caller.

mod side;

mod set;

mod run;

mod cause;

pub use cause::{Cause, cause};
pub use run::{Property, Zfs, ZfsError, args, is_of};
pub use set::Set;
pub use side::Listed;
