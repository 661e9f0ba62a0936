// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Lines of vminfod's event stream, cut into pieces anywhere.

#![no_main]

use sdc_clients::vminfod::{Lines, parse_line};

libfuzzer_sys::fuzz_target!(|input: (usize, &[u8])| {
    let (cut, bytes) = input;
    let read = |pieces: [&[u8]; 2]| {
        let mut lines = Lines::new(1 << 12);
        let mut seen = Vec::new();
        for piece in pieces {
            lines.push(piece);
            while let Ok(Some(line)) = lines.next_line() {
                let _ended = parse_line(&line);
                seen.push(line);
            }
        }
        seen
    };
    let cut = cut % (bytes.len() + 1);
    // A line that is too long ends a stream, and where that shows depends on the cut.
    if bytes.len() <= 1 << 12 {
        assert_eq!(read([&bytes[..cut], &bytes[cut..]]), read([bytes, &[]]));
    }
});
