// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The options of each command. Pure.

use super::nopt::{Short, Spec};

const fn flag(name: &'static str) -> Spec {
    Spec { name, is_flag: true }
}

const fn text(name: &'static str) -> Spec {
    Spec { name, is_flag: false }
}

const VERBOSE: Spec = flag("verbose");
const DEBUG: Spec = flag("debug");
const V: Short = ('v', &["--verbose"]);
const D: Short = ('d', &["--debug"]);

/// `list`
pub const LIST: &[Spec] =
    &[VERBOSE, DEBUG, text("order"), text("sortby"), flag("parsable"), flag("header")];
/// `list`
pub const LIST_SHORTS: &[Short] = &[
    V,
    D,
    ('o', &["--order"]),
    ('s', &["--sortby"]),
    ('p', &["--parsable"]),
    ('H', &["--no-header"]),
    ('h', &["--header"]),
];

/// `lookup`
pub const LOOKUP: &[Spec] = &[VERBOSE, DEBUG, flag("json"), flag("unique"), text("output")];
/// `lookup`
pub const LOOKUP_SHORTS: &[Short] =
    &[V, D, ('j', &["--json"]), ('1', &["--unique"]), ('o', &["--output"])];

/// `events`
pub const EVENTS: &[Spec] = &[VERBOSE, DEBUG, flag("full"), flag("json"), flag("ready")];
/// `events`
pub const EVENTS_SHORTS: &[Short] =
    &[V, D, ('f', &["--full"]), ('j', &["--json"]), ('r', &["--ready"])];

/// `get`, `json`
pub const PLAIN: &[Spec] = &[VERBOSE, DEBUG];
/// `get`, `json`
pub const PLAIN_SHORTS: &[Short] = &[V, D];
