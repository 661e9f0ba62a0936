// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! An object whose known fields are typed, and whose other fields and whose order are kept.

use std::ops::{Deref, DerefMut};

use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::invalid::{Fault, Invalid};

/// Fields that are read one by one, so that every fault is found.
pub trait Fields: Serialize + Sized {
    /// Reads the fields; `None` only if a fault was noted.
    fn read(reader: &mut Reader) -> Option<Self>;
}

/// The typed fields `T` of an object, the fields that `T` does not know, and the order of all.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape<T> {
    known: T,
    other: Map<String, Value>,
    order: Vec<String>,
}

impl<T: Fields> Shape<T> {
    /// Returns an object that was not read from anywhere.
    pub fn new(known: T) -> Shape<T> {
        Shape { known, other: Map::new(), order: Vec::new() }
    }

    /// Reads an object. The error lists every faulty field.
    pub fn read(value: &Value) -> Result<Shape<T>, Invalid> {
        let Value::Object(fields) = value else { return Err(Invalid(vec![Fault::NotAnObject])) };
        let order = fields.keys().cloned().collect();
        let mut reader = Reader { fields: fields.clone(), faults: Vec::new() };
        match T::read(&mut reader) {
            Some(known) if reader.faults.is_empty() => {
                Ok(Shape { known, other: reader.fields, order })
            }
            _ => Err(Invalid(reader.faults)),
        }
    }
}

impl<T: Fields> Shape<T> {
    /// Returns the object: the fields that were read in their order, then those that were added.
    pub fn to_json(&self) -> Value {
        let Ok(Value::Object(mut known)) = serde_json::to_value(&self.known) else {
            return Value::Null; // fields of records have no keys that are not texts
        };
        let mut object = Map::new();
        for name in &self.order {
            if let Some(value) = known.shift_remove(name).or_else(|| self.other.get(name).cloned())
            {
                object.insert(name.clone(), value);
            }
        }
        object.extend(known);
        Value::Object(object)
    }
}

impl<T: Fields> Serialize for Shape<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

impl<T> Deref for Shape<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.known
    }
}

impl<T> DerefMut for Shape<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.known
    }
}

/// Takes fields out of an object and notes the faulty ones.
pub struct Reader {
    fields: Map<String, Value>,
    faults: Vec<Fault>,
}

impl Reader {
    /// Takes a field that may be absent. A null stays among the fields that are not known.
    pub fn optional<V: DeserializeOwned>(&mut self, name: &str) -> Option<V> {
        let value = self.fields.get(name).filter(|value| !value.is_null())?.clone();
        match serde_json::from_value(value) {
            Ok(read) => {
                self.fields.shift_remove(name);
                Some(read)
            }
            Err(_) => {
                self.faults.push(Fault::Field(name.to_owned()));
                None
            }
        }
    }

    /// Takes a field that must be there.
    pub fn required<V: DeserializeOwned>(&mut self, name: &str) -> Option<V> {
        if self.fields.get(name).is_none_or(Value::is_null) {
            self.faults.push(Fault::Missing(name.to_owned()));
            return None;
        }
        self.optional(name)
    }

    /// Takes a list of objects; an absent one is empty.
    pub fn list<T: Fields>(&mut self, name: &str) -> Vec<Shape<T>> {
        let Some(rows) = self.optional::<Vec<Value>>(name) else { return Vec::new() };
        let mut read = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            match Shape::read(row) {
                Ok(row) => read.push(row),
                Err(Invalid(faults)) => self.faults.extend(faults.into_iter().map(|fault| {
                    let path = |field: String| format!("{name}[{at}].{field}");
                    match fault {
                        Fault::Field(field) => Fault::Field(path(field)),
                        Fault::Missing(field) => Fault::Missing(path(field)),
                        Fault::NotAnObject => Fault::Field(format!("{name}[{at}]")),
                    }
                })),
            }
        }
        read
    }
}
