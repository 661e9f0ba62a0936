// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A record of NAPI, and the addresses in it.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(nic) = serde_json::from_slice::<sdc_clients::napi::Nic>(bytes) {
        let _shown = format!("{nic:?}");
    }
    if let Ok(mac) = String::from_utf8_lossy(bytes).parse::<sdc_clients::MacAddr>() {
        assert_eq!(mac.to_string().parse(), Ok(mac));
    }
});
