// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Arbitrary bytes as the zone index and a name to find there: a name that is listed is a whole
//! first field of a line.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: (&str, &[u8])| {
    let (name, index) = input;
    if vm_model::parse::zone_index::lists(index, name) {
        assert!(String::from_utf8_lossy(index).contains(name) && !name.contains([':', '\n']));
    }
});
