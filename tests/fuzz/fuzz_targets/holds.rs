// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The operator's holds as their file has them.

#![no_main]

use net_agent::holds::Holds;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(holds) = Holds::parse(bytes) {
        let written = serde_json::to_vec(&holds).expect("holds are JSON");
        let again = Holds::parse(&written).expect("what was written is read");
        assert_eq!(serde_json::to_vec(&again).ok(), Some(written));
    }
});
