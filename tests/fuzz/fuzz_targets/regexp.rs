// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Patterns of operators: any text may be one, and none may take for ever.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: (&str, &str, bool)| {
    let (pattern, text, ignore_case) = input;
    if let Ok(regexp) = vminfod::cli::vmadm::regexp::Regexp::new(pattern, ignore_case) {
        let _matches = regexp.is_match(text);
    }
});
