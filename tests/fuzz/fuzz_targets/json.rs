// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Arbitrary bytes as JSON, printed and read again.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ended = vm_model::js::parse(bytes).map(|value| {
        let text = vm_model::js::to_ascii(&value);
        assert_eq!(vm_model::js::parse(text.as_bytes()).ok(), Some(value), "{text}");
    });
});
