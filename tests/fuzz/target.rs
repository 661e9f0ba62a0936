// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Feeds the parser that this program is named after.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| testbed::fuzz::feed(env!("CARGO_BIN_NAME"), bytes));
