// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the file watcher's helper says, whole conversations of it: whatever comes, no request is
//! forgotten in a heap.

#![no_main]

use std::sync::Arc;

use vminfod::node::root::Root;
use vminfod::sources::watch_fswatcher::Talk;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let zones = Arc::new([("z".into(), "/zones/z".into())].into());
    let mut talk = Talk::new(Root::new("/r"));
    let _news = talk.want(&zones);
    let wanted = talk.unanswered();
    for line in bytes.split(|byte| *byte == b'\n') {
        let _signals = talk.told(line);
        assert!(talk.unanswered() <= wanted);
    }
});
