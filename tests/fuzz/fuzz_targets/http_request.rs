// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Arbitrary text as the path and query of a request: a canonical path has neither empty nor dotted
//! parts, and a value found in a query is part of it.

#![no_main]

use daemon::http::query;
use vminfod::http::compat;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let (path, text_of_query) =
        text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
    let route = compat::canonical(path);
    let parts = route.strip_prefix('/').unwrap_or_default().split('/');
    assert!(route == "/" || parts.into_iter().all(|part| !matches!(part, "" | "." | "..")));
    assert_eq!(compat::canonical(&route), route);
    for key in ["full", "sync", "epoch", "since"] {
        if let Some(value) = query::value(text_of_query, key) {
            assert!(text_of_query.is_some_and(|query| query.contains(value)));
        }
        let _wanted = compat::wants(text_of_query, key);
    }
});
