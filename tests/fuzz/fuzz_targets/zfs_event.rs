// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a zfs history event is about: names that cannot be listed must never be asked for.

#![no_main]

use vminfod::sources::zfs::{depth, pool, signals, vm_uuid};

libfuzzer_sys::fuzz_target!(|input: (&str, &str, &str)| {
    let (name, action, text) = input;
    let data = serde_json::json!({
        "history_dsname": name, "history_internal_name": action, "history_internal_str": text,
    });
    for signal in data.as_object().map(signals).unwrap_or_default() {
        assert!(!signal.name.starts_with('-') && !signal.name.contains("/%"), "{}", signal.name);
    }
    let _all = (vm_uuid(name), depth(name), pool(name));
});
