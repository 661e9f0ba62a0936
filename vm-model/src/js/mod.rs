// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! JSON, numbers, dates and texts with the rules of JavaScript, which the deployed daemon and its
//! clients are written in. Nothing here knows what a value means.

mod write;

mod parse;

mod convert;

mod date;

mod number;

#[cfg(test)]
mod tests;

pub use convert::{
    base64_text, bool_value, comma_split, is_space, lossy, mib, number_value, to_int32, to_number,
    trim,
};
pub use date::iso;
pub use number::{number, number_text};
pub use parse::{JsonError, MAX_DEPTH, compact, parse};
pub use write::{serialisations, to_ascii, write_ascii};
