// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! All tests of the mocks as others use them: the library under paused time, and the program.

#![allow(clippy::unwrap_used)] // a failed step of a test is a failed test

mod changefeed;
mod cnapi;
mod docs;
mod section12;
mod triton;
