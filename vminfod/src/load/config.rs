// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! ZONEPATH/config: metadata, tags and routes, kept as they are.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::{Ctx, Fault, LoadError, Origin, ZoneRow, read_unlinked_if_there};
use crate::json::{self, JsonError};
use crate::root::{Root, check_unlinked};

const CAP: u64 = 16 * 1024 * 1024;

/// The four JSON fields; all are absent when the directory of an incomplete zone cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigJson {
    /// `customer_metadata` of metadata.json.
    pub customer_metadata: Option<JsonText>,
    /// `internal_metadata` of metadata.json.
    pub internal_metadata: Option<JsonText>,
    /// All of routes.json.
    pub routes: Option<JsonText>,
    /// All of tags.json.
    pub tags: Option<JsonText>,
}

/// The same four as they were read, before they are put away.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ConfigValues {
    /// `customer_metadata` of metadata.json.
    pub customer_metadata: Option<Value>,
    /// `internal_metadata` of metadata.json.
    pub internal_metadata: Option<Value>,
    /// All of routes.json.
    pub routes: Option<Value>,
    /// All of tags.json.
    pub tags: Option<Value>,
}

impl From<&ConfigValues> for ConfigJson {
    fn from(values: &ConfigValues) -> Self {
        let text = |value: &Option<Value>| value.as_ref().map(JsonText::from);
        ConfigJson {
            customer_metadata: text(&values.customer_metadata),
            internal_metadata: text(&values.internal_metadata),
            routes: text(&values.routes),
            tags: text(&values.tags),
        }
    }
}

impl ConfigJson {
    /// The values themselves.
    pub fn values(&self) -> ConfigValues {
        let value = |text: &Option<JsonText>| text.as_ref().map(JsonText::value);
        ConfigValues {
            customer_metadata: value(&self.customer_metadata),
            internal_metadata: value(&self.internal_metadata),
            routes: value(&self.routes),
            tags: value(&self.tags),
        }
    }
}

/// A JSON value as it is kept from one reading to the next: its text, a fraction of the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonText(Box<str>);

impl JsonText {
    /// The value itself.
    pub fn value(&self) -> Value {
        // Only what was printed here is kept, and that can be read.
        json::parse(self.0.as_bytes()).unwrap_or(Value::Null)
    }
}

impl From<&Value> for JsonText {
    fn from(value: &Value) -> Self {
        // A copy of just its size: a buffer that is cut leaves its rest behind, beside what stays.
        JsonText(json::compact(value).as_str().into())
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

/// Reads the three files of one zone.
pub async fn load(ctx: &Ctx, row: &ZoneRow) -> Result<ConfigJson, LoadError> {
    let (row, place) = (row.clone(), &row.zonepath);
    let values = ctx.on_files(Origin::Config, place, move |root| read(root, &row)).await?;
    Ok((&values).into())
}

/// The same here and now, where it may block, and not put away yet.
pub(super) fn read(root: &Root, row: &ZoneRow) -> Result<ConfigValues, LoadError> {
    let dir = root.config_dir(&row.zonepath);
    let own = check_unlinked(&dir)
        .map_err(|e| LoadError::new(Origin::Config, Fault::Read(e)).in_file(&dir));
    let file = |name: &str| {
        let path = root.config_file(&row.zonepath, name);
        let read = own.clone().and_then(|()| read_unlinked_if_there(Origin::Config, &path, CAP));
        match read {
            Ok(bytes) => value(bytes.as_deref())
                .map(Some)
                .map_err(|e| LoadError::new(Origin::Config, Fault::Json(e)).in_file(&path)),
            // An incomplete zone may be half there: its VM is shown without these fields.
            Err(_) if row.zone_state == "incomplete" => Ok(None),
            Err(e) => Err(e),
        }
    };
    let (metadata, routes, tags) = (file("metadata")?, file("routes")?, file("tags")?);
    let (Some(metadata), Some(routes), Some(tags)) = (metadata, routes, tags) else {
        return Ok(ConfigValues::default());
    };
    let path = root.config_file(&row.zonepath, "metadata");
    let (customer, internal) = split_metadata(metadata).map_err(|e| e.in_file(path))?;
    Ok(ConfigValues {
        customer_metadata: Some(customer),
        internal_metadata: Some(internal),
        routes: Some(routes),
        tags: Some(tags),
    })
}

/// One file's value: absent and what is no JSON count as an empty object, as deployed.
pub fn value(bytes: Option<&[u8]>) -> Result<Value, JsonError> {
    let empty = || Value::Object(Map::new());
    match bytes.map(json::parse) {
        None | Some(Err(JsonError::Syntax { .. })) => Ok(empty()),
        Some(result) => result,
    }
}

/// Customer and internal metadata. What is no object has neither.
pub fn split_metadata(metadata: Value) -> Result<(Value, Value), LoadError> {
    let mut members = match metadata {
        Value::Object(members) => members,
        Value::Null => {
            return Err(LoadError::content(Origin::Config, "expected a JSON object, found null"));
        }
        _ => Map::new(),
    };
    // The deployed daemon dies of this key; nobody can have stored it on purpose.
    if members.contains_key("hasOwnProperty") {
        let what = "expected customer_metadata and internal_metadata, found the key hasOwnProperty";
        return Err(LoadError::content(Origin::Config, what));
    }
    let mut take = |key| members.shift_remove(key).unwrap_or_else(|| Value::Object(Map::new()));
    Ok((take("customer_metadata"), take("internal_metadata")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_no_json_is_empty() {
        for text in
            [None, Some(&b""[..]), Some(b"{"), Some(b"{\"a\":1,}"), Some(b"\xef\xbb\xbf{\"a\":1}")]
        {
            assert_eq!(value(text), Ok(json!({})));
        }
        assert_eq!(value(Some(b"[1]")), Ok(json!([1])));
        assert!(value(Some("[".repeat(1000).as_bytes())).is_err(), "too deep is no empty object");
    }

    #[test]
    fn what_is_kept_is_what_was_read() {
        for text in
            [r#"{"b":1.5,"2":[-1e400,0.1,1e21],"1":"\u00e9\ud83d\ude00\u0000"}"#, "null", "7"]
        {
            let value = value(Some(text.as_bytes())).unwrap();
            let kept = JsonText::from(&value);
            assert_eq!(kept.value(), value, "{text}");
            assert_eq!(serde_json::to_value(&kept).unwrap(), value, "{text}");
        }
    }

    #[test]
    fn metadata_is_split() {
        let (customer, internal) =
            split_metadata(json!({"customer_metadata": null, "x": 1})).unwrap();
        assert_eq!((customer, internal), (json!(null), json!({})));
        assert_eq!(split_metadata(json!("text")).unwrap(), (json!({}), json!({})));
        assert!(split_metadata(json!(null)).is_err());
        assert!(split_metadata(json!({"hasOwnProperty": 0})).is_err());
    }
}
