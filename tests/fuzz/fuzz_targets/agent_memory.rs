// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the last run of the agent left on the disk.

#![no_main]

use net_agent::state_file::Kept;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(kept) = serde_json::from_slice::<Kept>(bytes) {
        let written = serde_json::to_vec(&kept).expect("a memory is JSON");
        let again: Kept = serde_json::from_slice(&written).expect("what was written is read");
        assert_eq!(serde_json::to_vec(&again).ok(), Some(written));
    }
});
