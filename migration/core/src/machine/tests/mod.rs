// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The machine against the recordings, and against a model of two nodes.

#![allow(clippy::unwrap_used)]

mod failures;

mod hands;

mod fence;

mod order;

mod promises;

mod service;

mod model;

mod table;
