// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The zone_misc kstats: when each active zone booted and what its init is.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::{Ctx, Fault, LoadError, Origin, ZoneRow, is_lower_uuid};
use crate::commands::Tool;
use crate::json::{self, JsonError};

/// So much is parsed where it was read.
const SMALL: usize = 64 * 1024;
/// So much is looked through where it was read.
const LOOKED_THROUGH: usize = 256 * 1024;

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
    let text = printed(ctx).await?;
    aside(text.len() < SMALL, move || parse(&text)).await
}

/// One reading of the kstats that few zones are wanted of: the command gives those of all, and
/// making values of them all for one would take longer than the command.
#[derive(Debug)]
pub struct Printed {
    text: Vec<u8>,
    /// Somebody has looked through it.
    used: AtomicBool,
    /// Parsed for those who come after.
    all: OnceLock<Result<HashMap<String, ZoneKstat>, LoadError>>,
}

impl Printed {
    /// Reads them.
    pub async fn load(ctx: &Ctx) -> Result<Arc<Printed>, LoadError> {
        let (text, used, all) = (printed(ctx).await?, AtomicBool::default(), OnceLock::new());
        Ok(Arc::new(Printed { text, used, all }))
    }

    /// The kstat of this VM.
    pub async fn of(self: Arc<Self>, row: &ZoneRow) -> Result<Option<ZoneKstat>, LoadError> {
        let uuid = row.uuid.clone();
        aside(self.text.len() < LOOKED_THROUGH, move || {
            if !self.used.swap(true, Ordering::Relaxed) {
                return find(&self.text, &uuid);
            }
            let all = self.all.get_or_init(|| parse(&self.text)).as_ref();
            all.map(|all| all.get(&*uuid).cloned()).map_err(Clone::clone)
        })
        .await
    }
}

async fn printed(ctx: &Ctx) -> Result<Vec<u8>, LoadError> {
    let output = ctx.run(Origin::Kstat, Tool::Kstat, Vec::new(), ctx.deadlines.kstat).await?;
    if output.status != 0 {
        let fault = Fault::Exit { status: output.status, complaint: output.complaint() };
        return Err(LoadError::new(Origin::Kstat, fault));
    }
    Ok(output.stdout)
}

/// Very many zones keep a thread busy for a while, and others wait for this one.
async fn aside<T: Send + 'static>(
    is_short: bool,
    work: impl FnOnce() -> Result<T, LoadError> + Send + 'static,
) -> Result<T, LoadError> {
    if is_short {
        return work();
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(LoadError::content(Origin::Kstat, e.to_string())))
}

/// The kstat of this VM. Matched by uuid, as the deployed daemon does.
pub fn of<'a>(kstats: &'a HashMap<String, ZoneKstat>, row: &ZoneRow) -> Option<&'a ZoneKstat> {
    kstats.get(&*row.uuid)
}

/// Reads the array; kstats that could not be read or belong to no VM are left out.
pub fn parse(bytes: &[u8]) -> Result<HashMap<String, ZoneKstat>, LoadError> {
    utf8(bytes)?;
    let mut kstats = HashMap::new();
    checked(json::elements(bytes, |kstat| kstats.extend(of_value(&kstat))))?;
    Ok(kstats)
}

/// What [`parse`] has for this uuid.
pub fn find(bytes: &[u8], uuid: &str) -> Result<Option<ZoneKstat>, LoadError> {
    let mut found = None;
    let each = |text: &str| {
        // An escape may stand for any character.
        if text.contains(uuid) || text.contains('\\') {
            let kstat = json::parse(text.as_bytes()).ok().as_ref().and_then(of_value);
            found = kstat.filter(|(name, _)| name == uuid).map(|(_, kstat)| kstat).or(found.take());
        }
    };
    checked(json::raw_elements(utf8(bytes)?, each))?;
    Ok(found)
}

fn utf8(bytes: &[u8]) -> Result<&str, LoadError> {
    std::str::from_utf8(bytes).map_err(|e| {
        let what = format!("expected UTF-8 at offset {}", e.valid_up_to());
        LoadError::content(Origin::Kstat, what)
    })
}

fn checked(is_array: Result<bool, JsonError>) -> Result<(), LoadError> {
    match is_array {
        Ok(true) => Ok(()),
        Ok(false) => Err(LoadError::content(Origin::Kstat, "expected a JSON array of kstats")),
        Err(e) => Err(LoadError::new(Origin::Kstat, Fault::Json(e))),
    }
}

fn of_value(kstat: &Value) -> Option<(String, ZoneKstat)> {
    kstat.get("data").and_then(Value::as_object).and_then(entry)
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
    use super::super::zoneadm;
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
        let last =
            ZoneKstat { boot_time: None, init_restarts: Some(Small::Whole(2)), init_pid: None };
        assert_eq!(kstats[U], last);
        assert_eq!(find(text.as_bytes(), U).unwrap(), Some(last));
    }

    #[test]
    fn one_that_is_looked_for_is_found_however_it_is_written() {
        let escaped = format!(r#"[{{"data":{{"zonename":"\u0066{}","init_pid":7}}}}]"#, &U[1..]);
        let found = find(escaped.as_bytes(), U).unwrap();
        assert_eq!(found.unwrap().init_pid, Some(Small::Whole(7)));
        // Its name elsewhere is not its kstat.
        let text = format!(r#"[{{"data":{{"zonename":"global","x":"{U}","init_pid":7}}}}]"#);
        assert_eq!(find(text.as_bytes(), U).unwrap(), None);
        // What is broken behind it is no reading.
        let text = format!(r#"[{{"data":{{"zonename":"{U}"}}}},{{"data":}}]"#);
        assert_eq!(
            find(text.as_bytes(), U).unwrap_err().to_string(),
            parse(text.as_bytes()).unwrap_err().to_string()
        );
    }

    #[tokio::test]
    async fn whoever_asks_gets_the_same() {
        let texts = [format!(r#"[{{"data":{{"zonename":"{U}","init_pid":7}}}}]"#), "{".to_owned()];
        let row = zoneadm::parse(format!("-:{U}:installed:/z:{U}:lx:excl:1\n").as_bytes());
        for text in texts {
            let (text, used, all) = (text.into_bytes(), AtomicBool::default(), OnceLock::new());
            let printed = Arc::new(Printed { text, used, all });
            let first = Arc::clone(&printed).of(&row[0]).await;
            let second = Arc::clone(&printed).of(&row[0]).await;
            assert_eq!(format!("{first:?}"), format!("{second:?}"));
            assert_eq!(first.is_ok(), printed.text.len() > 1);
        }
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
            let _ = find(&bytes, U);
        }
    }
}
