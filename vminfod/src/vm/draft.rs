// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! An object while it is composed. The names of its fields are words of the program: in a tree of
//! values each would be a copy, and hashed.
//!
//! Knows what an object is, and nothing of what its fields mean.

use sdc_clients::vminfod::VmObject;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// Fields in the order they were set; what is set again stays in its place.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Draft(Vec<(&'static str, Field)>);

/// What a field has.
#[derive(Debug, Clone, PartialEq)]
pub enum Field {
    /// A value that was read or computed.
    Plain(Value),
    /// An object with fields of its own: a nic, a disk.
    Object(Draft),
    /// Any number of either.
    List(Vec<Field>),
}

impl Draft {
    /// One without fields, and with room for so many.
    pub fn with_capacity(fields: usize) -> Self {
        Draft(Vec::with_capacity(fields))
    }

    /// A field, if it was set. There are few enough for a look at all of them.
    pub fn get(&self, name: &str) -> Option<&Field> {
        self.0.iter().find(|(own, _)| *own == name).map(|(_, field)| field)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Field> {
        self.0.iter_mut().find(|(own, _)| *own == name).map(|(_, field)| field)
    }

    /// A field that is a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.plain(name)?.as_str()
    }

    /// A field that is neither an object nor a list of fields.
    pub fn plain(&self, name: &str) -> Option<&Value> {
        match self.get(name)? {
            Field::Plain(value) => Some(value),
            Field::Object(_) | Field::List(_) => None,
        }
    }

    /// The elements of a field that is a list of fields; none of any other.
    pub fn list(&self, name: &str) -> &[Field] {
        match self.get(name) {
            Some(Field::List(items)) => items,
            _ => &[],
        }
    }

    /// Sets a field.
    pub fn put(&mut self, name: &'static str, field: Field) {
        match self.get_mut(name) {
            Some(own) => *own = field,
            None => self.0.push((name, field)),
        }
    }

    /// One more element of a list, which begins with it if need be.
    pub fn push(&mut self, name: &'static str, item: Field) {
        match self.get_mut(name) {
            Some(Field::List(items)) => items.push(item),
            // A field that is no list stays what it is.
            Some(_) => {}
            None => self.0.push((name, Field::List(vec![item]))),
        }
    }

    /// Takes a field out; the others keep their order.
    pub fn remove(&mut self, name: &str) -> Option<Field> {
        let at = self.0.iter().position(|(own, _)| *own == name)?;
        Some(self.0.remove(at).1)
    }
}

impl Field {
    /// A nic, a disk or the like.
    pub fn as_object(&self) -> Option<&Draft> {
        match self {
            Field::Object(object) => Some(object),
            Field::Plain(_) | Field::List(_) => None,
        }
    }

    /// The same, to be changed.
    pub fn as_object_mut(&mut self) -> Option<&mut Draft> {
        match self {
            Field::Object(object) => Some(object),
            Field::Plain(_) | Field::List(_) => None,
        }
    }
}

impl Serialize for Draft {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, field) in &self.0 {
            map.serialize_entry(name, field)?;
        }
        map.end()
    }
}

impl Serialize for Field {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Field::Plain(value) => value.serialize(serializer),
            Field::Object(object) => object.serialize(serializer),
            Field::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(item)?;
                }
                list.end()
            }
        }
    }
}

impl From<Draft> for VmObject {
    fn from(draft: Draft) -> Self {
        draft.0.into_iter().map(|(name, field)| (name.to_owned(), field.into())).collect()
    }
}

impl From<Field> for Value {
    fn from(field: Field) -> Self {
        match field {
            Field::Plain(value) => value,
            Field::Object(object) => Value::Object(object.into()),
            Field::List(items) => items.into_iter().map(Value::from).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::json::to_ascii;

    fn draft() -> Draft {
        let mut nic = Draft::default();
        nic.put("mac", Field::Plain(json!("00:01")));
        let mut draft = Draft::with_capacity(4);
        draft.put("b", Field::Plain(json!(1)));
        draft.push("nics", Field::Object(nic));
        draft.put("a", Field::Plain(json!({"é": [null, 1.5]})));
        draft.push("nics", Field::Plain(json!("x")));
        draft.put("b", Field::Plain(json!("again")));
        draft
    }

    #[test]
    fn fields_keep_their_places_and_what_is_no_list_is_none() {
        let mut draft = draft();
        assert_eq!(
            (draft.text("b"), draft.text("a"), draft.text("c")),
            (Some("again"), None, None)
        );
        let nics: Vec<_> = draft.list("nics").iter().map(|nic| nic.as_object().is_some()).collect();
        assert_eq!(nics, [true, false]);
        draft.push("b", Field::Plain(json!(2)));
        assert_eq!((draft.text("b"), draft.list("b")), (Some("again"), &[][..]));
        assert_eq!(draft.plain("nics"), None);
        assert_eq!(draft.remove("b"), Some(Field::Plain(json!("again"))));
        assert_eq!(draft.remove("b"), None);
        draft.put("b", Field::Plain(json!(3)));
        assert_eq!(
            to_ascii(&draft),
            r#"{"nics":[{"mac":"00:01"},"x"],"a":{"\u00e9":[null,1.5]},"b":3}"#
        );
    }

    #[test]
    fn it_is_written_as_the_tree_of_values_is() {
        let text = to_ascii(&draft());
        assert_eq!(text, to_ascii(&VmObject::from(draft())));
        assert_eq!(to_ascii(&Draft::default()), "{}");
    }
}
