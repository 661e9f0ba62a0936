// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Reads what the node and VMAPI say, judges, and writes.

// Blank lines keep the modules in layer order.

mod many;

mod turn;

mod absence;

pub(crate) use many::compare;
pub(crate) use turn::{After, judge_now, turn};
