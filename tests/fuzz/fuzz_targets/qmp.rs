// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a guest's QEMU says on its monitor, whole sessions of it.

#![no_main]

use std::time::Duration;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ended = kvmd::qmp::parse_line(bytes);
    let mut session = kvmd::session::Session::default();
    let mut lines = kvmd::qmp::Lines::default();
    lines.push(bytes, |line| drop(session.line(Duration::ZERO, &line)));
    lines.finish().into_iter().for_each(|line| drop(session.line(Duration::ZERO, &line)));
    let _verdict = session.verdict(Duration::ZERO, kvmd::judge::ADMIN_WINDOW);
});
