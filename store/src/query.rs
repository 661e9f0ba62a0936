// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Conditions, order, markers and pages.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use crate::error::{Error, Invalid, Thing};
use crate::index::{self, BY_KEY};
use crate::limits;
use crate::schema::Schema;

/// Which records of a bucket, in which order, how many, from where on.
#[derive(Debug, Clone, Default)]
pub struct Query {
    conditions: Vec<(String, Value)>,
    order: Option<String>,
    is_descending: bool,
    limit: Option<usize>,
    after: Option<Marker>,
}

impl Query {
    /// All records, by key.
    pub fn all() -> Query {
        Query::default()
    }

    /// Only records with this value in the field, or among the items where it has a list. Null finds
    /// those that lack the field.
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Query {
        self.conditions.push((field.to_owned(), value.into()));
        self
    }

    /// In the order of this field, and of the keys where it is equal.
    pub fn by(mut self, field: &str) -> Query {
        self.order = Some(field.to_owned());
        self
    }

    /// The greatest first.
    pub fn descending(mut self) -> Query {
        self.is_descending = true;
        self
    }

    /// At most so many on a page; otherwise, and at most, [`limits::PAGE`].
    pub fn limit(mut self, limit: usize) -> Query {
        self.limit = Some(limit);
        self
    }

    /// Those after the marker of a page of the same query.
    pub fn after(mut self, marker: Marker) -> Query {
        self.after = Some(marker);
        self
    }

    /// Translates the query for the engines.
    pub(crate) fn search(self, schema: &Schema) -> Result<Search, Error> {
        let bucket = schema.bucket.to_owned();
        let missing =
            |field: &str| Invalid::NotIndexed { bucket: bucket.clone(), field: field.to_owned() };
        if self.conditions.len() > limits::CONDITIONS {
            let (size, limit) = (self.conditions.len(), limits::CONDITIONS);
            return Err(Error::TooLarge { what: Thing::Conditions, size, limit });
        }
        let mut conditions = Vec::new();
        for (field, value) in &self.conditions {
            let mut all = schema.fields.iter().chain(schema.lists);
            let field = *all.find(|it| *it == field).ok_or_else(|| missing(field))?;
            conditions.push((field, index::encode(field, value)?));
        }
        let order = match &self.order {
            None => BY_KEY,
            Some(field) => {
                *schema.fields.iter().find(|it| *it == field).ok_or_else(|| missing(field))?
            }
        };
        let limit = self.limit.unwrap_or(limits::PAGE).clamp(1, limits::PAGE);
        let is_descending = self.is_descending;
        let after = self.after.map(|marker| marker.0);
        Ok(Search { bucket, conditions, order, is_descending, limit, after })
    }
}

/// Where a record stands in the order of a query: its value, then its key.
pub(crate) type Position = (Vec<u8>, String);

/// A query as the engines take it.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    pub(crate) bucket: String,
    pub(crate) conditions: Vec<(&'static str, Vec<u8>)>,
    pub(crate) order: &'static str,
    pub(crate) is_descending: bool,
    pub(crate) limit: usize,
    pub(crate) after: Option<Position>,
}

/// Where a page ended: an opaque text for the next call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker(Position);

impl Marker {
    pub(crate) fn at(position: Position) -> Marker {
        Marker(position)
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, key) = &self.0;
        value.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, ".{key}")
    }
}

impl FromStr for Marker {
    type Err = Error;

    fn from_str(text: &str) -> Result<Marker, Error> {
        let invalid = || Invalid::Marker(text.chars().take(80).collect());
        let (value, key) = text.split_once('.').ok_or_else(invalid)?;
        crate::schema::key(key).map_err(|_| invalid())?;
        let is_hex = value.len() % 2 == 0 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_hex || value.len() > 2 * limits::INDEXED + 2 {
            return Err(invalid().into());
        }
        let byte = |at: usize| u8::from_str_radix(&value[at..at + 2], 16).map_err(|_| invalid());
        let value: Result<Vec<u8>, Invalid> = (0..value.len()).step_by(2).map(byte).collect();
        Ok(Marker((value?, key.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SCHEMA: Schema = Schema { bucket: "b", version: 1, fields: &["state"], lists: &["refs"] };

    #[test]
    fn a_query_names_only_fields_of_the_schema() {
        let error = |query: Query| query.search(&SCHEMA).unwrap_err().to_string();
        assert_eq!(error(Query::all().with("name", 1)), "bucket b has no index on name for this");
        assert_eq!(error(Query::all().by("refs")), "bucket b has no index on refs for this");
        let many = (0..9).fold(Query::all(), |query, _| query.with("state", "a"));
        assert_eq!(error(many), "the number of conditions has 9, 8 is the limit");
        for (asked, limit) in [(0, 1), (7, 7), (5000, 1000)] {
            assert_eq!(Query::all().limit(asked).search(&SCHEMA).unwrap().limit, limit);
        }
        assert_eq!(Query::all().with("refs", "a").search(&SCHEMA).unwrap().limit, 1000);
    }

    #[test]
    fn other_texts_are_no_markers() {
        for text in ["", "04", "0.k", "0g.k", "é0.k", "04.", "04.a\nb", &"00".repeat(1026)] {
            let error = text.parse::<Marker>().unwrap_err();
            assert!(matches!(error, Error::Invalid(Invalid::Marker(_))), "{text}");
        }
    }

    proptest! {
        #[test]
        fn markers_survive_as_text(value: Vec<u8>, key in "[^\\pC]{1,60}") {
            let marker = Marker::at((value, key));
            prop_assert_eq!(marker.to_string().parse::<Marker>().unwrap(), marker);
        }
    }
}
