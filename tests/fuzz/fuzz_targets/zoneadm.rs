// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Arbitrary bytes as zoneadm's list.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ended = vm_model::parse::zoneadm::parse(bytes);
});
