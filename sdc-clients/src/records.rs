// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Lists of what others wrote: a record that cannot be read is left out and counted, and hides no other.

use ::http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::Error;
use crate::http::Reply;

/// The longest record in bytes.
const LONGEST: usize = 64 << 10;
/// Texts kept about records that are left out, and characters of each.
const TEXTS: usize = 10;
const TEXT: usize = 200;

/// The records that were left out of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unreadable {
    /// How many.
    pub count: u32,
    /// What is wrong with the first of them.
    pub first: Vec<String>,
}

impl Unreadable {
    /// Counts a record, and keeps the beginning of `why` if it is one of the first.
    pub fn add(&mut self, why: &str) {
        self.count = self.count.saturating_add(1);
        if self.first.len() < TEXTS {
            self.first.push(why.chars().take(TEXT).collect());
        }
    }

    /// Adds those of another page.
    pub fn extend(&mut self, more: Unreadable) {
        self.count = self.count.saturating_add(more.count);
        let room = TEXTS.saturating_sub(self.first.len());
        self.first.extend(more.first.into_iter().take(room));
    }
}

/// Returns the records of a list, and those that cannot be read; `expected` says what it is a list of.
///
/// # Errors
/// If it is no list of objects.
pub(crate) fn records<T: DeserializeOwned>(
    reply: &Reply,
    expected: &str,
) -> Result<(Vec<T>, Unreadable), Error> {
    reply.require(StatusCode::OK)?;
    let all: Vec<Box<RawValue>> = reply.json(expected)?;
    let (mut records, mut unreadable) = (Vec::with_capacity(all.len()), Unreadable::default());
    for record in &all {
        let text = record.get();
        if !text.starts_with('{') {
            return Err(reply.unexpected(expected));
        }
        if text.len() > LONGEST {
            unreadable.add(&format!("a record of {} bytes: {text}", text.len()));
            continue;
        }
        match serde_json::from_str(text) {
            Ok(record) => records.push(record),
            Err(e) => unreadable.add(&format!("{e}: {text}")),
        }
    }
    Ok((records, unreadable))
}
