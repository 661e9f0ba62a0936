// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The zone_misc kstats: when each active zone booted and what its init is.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{Ctx, Fault, LoadError, Origin, ZoneRow, is_lower_uuid};
use crate::commands::Tool;
use crate::json;

/// So much is parsed where it was read.
const SMALL: usize = 64 * 1024;

/// What is used of one zone's kstat.
#[derive(Debug, Clone, PartialEq)]
pub struct ZoneKstat {
    /// Seconds since 1970.
    pub boot_time: Option<f64>,
    /// How often init was started again.
    pub init_restarts: Option<Small>,
    /// The process id of init.
    pub init_pid: Option<Small>,
}

/// A value that is nearly always a whole number, in a fraction of a value's memory.
#[derive(Debug, Clone, PartialEq)]
pub enum Small {
    /// It is.
    Whole(i64),
    /// It is another value.
    Other(Box<Value>),
}

impl From<&Value> for Small {
    fn from(value: &Value) -> Self {
        value.as_i64().map_or_else(|| Small::Other(Box::new(value.clone())), Small::Whole)
    }
}

impl From<&Small> for Value {
    fn from(small: &Small) -> Self {
        match small {
            Small::Whole(n) => Value::from(*n),
            Small::Other(value) => (**value).clone(),
        }
    }
}

/// The kstats of all zones whose name is a uuid.
pub async fn node(ctx: &Ctx) -> Result<HashMap<String, ZoneKstat>, LoadError> {
    let output = ctx.run(Origin::Kstat, Tool::Kstat, Vec::new(), ctx.deadlines.kstat).await?;
    if output.status != 0 {
        let fault = Fault::Exit { status: output.status, complaint: output.complaint() };
        return Err(LoadError::new(Origin::Kstat, fault));
    }
    if output.stdout.len() < SMALL {
        return parse(&output.stdout);
    }
    // Very many zones keep a thread busy for a while, and others wait for this one.
    let parsed = tokio::task::spawn_blocking(move || parse(&output.stdout)).await;
    parsed.unwrap_or_else(|e| Err(LoadError::content(Origin::Kstat, e.to_string())))
}

/// The kstat of this VM. Matched by uuid, as the deployed daemon does.
pub fn of<'a>(kstats: &'a HashMap<String, ZoneKstat>, row: &ZoneRow) -> Option<&'a ZoneKstat> {
    kstats.get(&*row.uuid)
}

/// Reads the array; kstats that could not be read or belong to no VM are left out.
pub fn parse(bytes: &[u8]) -> Result<HashMap<String, ZoneKstat>, LoadError> {
    if let Err(e) = std::str::from_utf8(bytes) {
        let what = format!("expected UTF-8 at offset {}", e.valid_up_to());
        return Err(LoadError::content(Origin::Kstat, what));
    }
    let mut kstats = HashMap::new();
    let each =
        |kstat: Value| kstats.extend(kstat.get("data").and_then(Value::as_object).and_then(entry));
    match json::elements(bytes, each) {
        Ok(true) => Ok(kstats),
        Ok(false) => Err(LoadError::content(Origin::Kstat, "expected a JSON array of kstats")),
        Err(e) => Err(LoadError::new(Origin::Kstat, Fault::Json(e))),
    }
}

fn entry(data: &Map<String, Value>) -> Option<(String, ZoneKstat)> {
    let zonename = data.get("zonename")?.as_str().filter(|n| is_lower_uuid(n))?;
    let kstat = ZoneKstat {
        boot_time: data.get("boot_time").and_then(Value::as_f64),
        init_restarts: data.get("init_restarts").map(Small::from),
        init_pid: data.get("init_pid").map(Small::from),
    };
    Some((zonename.to_owned(), kstat))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const U: &str = "f8428503-41e2-426e-b0f9-a5d849b545f6";

    #[test]
    fn the_last_good_kstat_of_a_uuid_counts() {
        let text = format!(
            r#"[{{"data":{{"zonename":"{U}","boot_time":1,"init_pid":5}}}},{{"data":{{"zonename":"{U}","init_restarts":2}}}},
            {{"error":"x"}},{{"data":{{"zonename":"global"}}}},7]"#
        );
        let kstats = parse(text.as_bytes()).unwrap();
        assert_eq!(kstats.len(), 1);
        assert_eq!(
            kstats[U],
            ZoneKstat { boot_time: None, init_restarts: Some(Small::Whole(2)), init_pid: None }
        );
    }

    #[test]
    fn any_value_stays_what_it_is() {
        for text in [
            "0",
            "-7",
            "9007199254740993",
            "18446744073709551615",
            "1.5",
            "1e300",
            "\"x\"",
            "null",
            "[1]",
        ] {
            let value = json::parse(text.as_bytes()).unwrap();
            assert_eq!(Value::from(&Small::from(&value)), value, "{text}");
        }
    }

    #[test]
    fn what_is_no_array_is_an_error() {
        assert_eq!(parse(b"{}").unwrap_err().to_string(), "kstat: expected a JSON array of kstats");
        assert!(parse(b"[").unwrap_err().to_string().starts_with("kstat: not JSON"));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }
    }
}
