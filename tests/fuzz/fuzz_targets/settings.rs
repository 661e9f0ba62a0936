// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The configuration files of the daemons.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    for fields in [daemon::Fields::from_json(text), daemon::Fields::from_toml(text)] {
        let _ended = fields.and_then(vminfod::config::Config::read);
    }
    let _span = daemon::config::parse_span(text);
});
