// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A note of the journal: what is read is written and read again as the same.

#![no_main]

use vminfod::store::note::Note;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let note = Note::parse(bytes);
    assert_eq!(Note::parse(&note.to_bytes()), note);
});
