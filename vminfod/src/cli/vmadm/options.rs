// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The options of each command. Pure.

use super::nopt::Kind::{Flag, Off, Text};
use super::nopt::Spec;

const VERBOSE: Spec = ('v', "verbose", Flag);
const DEBUG: Spec = ('d', "debug", Flag);

/// `list`
pub const LIST: &[Spec] = &[
    VERBOSE,
    DEBUG,
    ('o', "order", Text),
    ('s', "sortby", Text),
    ('p', "parsable", Flag),
    ('h', "header", Flag),
    ('H', "header", Off),
];

/// `lookup`
pub const LOOKUP: &[Spec] =
    &[VERBOSE, DEBUG, ('j', "json", Flag), ('1', "unique", Flag), ('o', "output", Text)];

/// `events`
pub const EVENTS: &[Spec] =
    &[VERBOSE, DEBUG, ('f', "full", Flag), ('j', "json", Flag), ('r', "ready", Flag)];

/// `get`, `json`
pub const PLAIN: &[Spec] = &[VERBOSE, DEBUG];
