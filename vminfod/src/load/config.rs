// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! ZONEPATH/config: metadata, tags and routes, kept as they are.

use serde_json::{Map, Value};

use super::times::{self, Opened};
use super::{Ctx, Fault, LoadError, Origin, ZoneRow, there};
use crate::json::{self, JsonError};
use crate::root::Root;

const CAP: u64 = 16 * 1024 * 1024;

/// The four JSON fields as they are kept from one reading to the next: one text, a fraction of the
/// memory of their values. All are absent when the directory of an incomplete zone cannot be read.
///
/// A line for each, empty where one is absent: no compact JSON text is empty or has a line end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigJson(Box<str>);

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
        let ConfigValues { customer_metadata, internal_metadata, routes, tags } = values;
        let all = [customer_metadata, internal_metadata, routes, tags];
        if all.iter().all(|value| value.is_none()) {
            return ConfigJson::default();
        }
        let lines = all.map(|value| value.as_ref().map(json::compact).unwrap_or_default());
        ConfigJson(lines.join("\n").into())
    }
}

impl ConfigJson {
    /// The values themselves.
    pub fn values(&self) -> ConfigValues {
        let mut lines = self.0.split('\n');
        // Only what was printed here is kept, and that can be read.
        let value = |line: &str| json::parse(line.as_bytes()).unwrap_or(Value::Null);
        let mut next = || lines.next().filter(|line| !line.is_empty()).map(value);
        ConfigValues {
            customer_metadata: next(),
            internal_metadata: next(),
            routes: next(),
            tags: next(),
        }
    }
}

/// Reads the three files of one zone.
pub async fn load(ctx: &Ctx, row: &ZoneRow) -> Result<ConfigJson, LoadError> {
    let (row, place) = (row.clone(), &row.zonepath);
    let work = move |root: &Root| read(root, &row, &mut Opened::begin());
    let values = ctx.on_files(Origin::Config, place, work).await?;
    Ok((&values).into())
}

/// The same here and now, where it may block, and not put away yet.
pub(super) fn read(
    root: &Root,
    row: &ZoneRow,
    opened: &mut Opened,
) -> Result<ConfigValues, LoadError> {
    let dir = root.config_dir(&row.zonepath);
    let own = root
        .check_unlinked(&dir)
        .map_err(|e| LoadError::new(Origin::Config, Fault::Read(e)).in_file(&dir));
    let mut file = |name: &str, stamp: usize| {
        let path = root.config_file(&row.zonepath, name);
        let read =
            own.clone().and_then(|()| there(Origin::Config, &path, root.read_unlinked(&path, CAP)));
        match read {
            Ok(content) => {
                if let Some(content) = &content {
                    opened.note(stamp, &content.stat);
                }
                value(content.as_ref().map(|content| &*content.bytes))
                    .map(Some)
                    .map_err(|e| LoadError::new(Origin::Config, Fault::Json(e)).in_file(&path))
            }
            // An incomplete zone may be half there: its VM is shown without these fields.
            Err(_) if row.zone_state == "incomplete" => {
                opened.cannot_tell();
                Ok(None)
            }
            Err(e) => Err(e),
        }
    };
    let metadata = file("metadata", times::METADATA)?;
    let (routes, tags) = (file("routes", times::ROUTES)?, file("tags", times::TAGS)?);
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
        let texts =
            [r#"{"b":1.5,"2":[-1e400,0.1,1e21],"1":"\u00e9\n\ud83d\ude00\u0000"}"#, "null", "7"];
        let some = |at: usize| Some(value(Some(texts[at].as_bytes())).unwrap());
        let (a, b, c) = (some(0), some(1), some(2));
        for [customer_metadata, internal_metadata, routes, tags] in [
            [a.clone(), b.clone(), c.clone(), a.clone()],
            [None, a.clone(), None, b],
            [c, None, a, None],
            [const { None }; 4],
        ] {
            let values = ConfigValues { customer_metadata, internal_metadata, routes, tags };
            assert_eq!(ConfigJson::from(&values).values(), values);
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
