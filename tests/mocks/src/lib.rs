// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Mock services of a data centre: NAPI and VMAPI in memory, with fault rules and request logs.

pub mod faults;
pub mod napi;
pub mod vmapi;
