// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `import`: takes over volumes and reservations from a running sdc-volapi.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use sdc_clients::Http;
use sdc_clients::http::{Call, LIST_TIMEOUT, user_agent};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use store::{Bucket, Expect, Query};

use super::serve::open;
use crate::config::Config;

/// The longest list that is read.
const LIST: usize = 256 << 20;

/// Imports; returns one line for each difference that was found, and a sum.
pub(super) async fn import(config: &Config, from: &str) -> anyhow::Result<String> {
    let agent = user_agent("volapi-import", env!("CARGO_PKG_VERSION"), None);
    let http = Http::new(from, &agent)?;
    let records = open(config).await?;
    let mut out = String::new();
    let volumes = listed(&http, "volumes").await?;
    take(&records.volumes, "volume", volumes, &mut out).await?;
    let reservations = listed(&http, "volumereservations").await?;
    take(&records.reservations, "reservation", reservations, &mut out).await?;
    Ok(out)
}

/// Returns a list of the deployed service as records: its times in milliseconds.
async fn listed(http: &Http, name: &str) -> anyhow::Result<Vec<Map<String, Value>>> {
    let call = Call::get(&[name]).timeout(LIST_TIMEOUT).body_cap(LIST);
    let mut records: Vec<Map<String, Value>> = http.execute(call).await?.json("an array")?;
    for record in &mut records {
        let Some(at) = record.get_mut("create_timestamp") else { bail!("{name}: no time") };
        let text = at.as_str().with_context(|| format!("{name}: create_timestamp {at}"))?;
        *at = text.parse::<Timestamp>()?.as_millisecond().into();
    }
    Ok(records)
}

async fn take<T: Serialize + DeserializeOwned>(
    bucket: &Bucket<T>,
    what: &str,
    records: Vec<Map<String, Value>>,
    out: &mut String,
) -> anyhow::Result<()> {
    let (mut new, mut changed, mut same) = (0, 0, 0);
    let mut seen = BTreeSet::new();
    for record in records {
        let record = Value::Object(record);
        let uuid = record["uuid"].as_str().context("a record without uuid")?.to_owned();
        let wanted: T = serde_json::from_value(record.clone()).with_context(|| uuid.clone())?;
        dropped(out, what, &uuid, &record, &serde_json::to_value(&wanted)?, "not taken over")?;
        let expect = match bucket.get(&uuid).await {
            Err(store::Error::NotFound { .. }) => {
                new += 1;
                writeln!(out, "{what} {uuid}: new")?;
                Expect::Absent
            }
            Ok(found) => {
                let ours = serde_json::to_value(&found.value)?;
                dropped(out, what, &uuid, &ours, &record, "only known here, dropped")?;
                let fields = differing(&ours, &record);
                if fields.is_empty() {
                    same += 1;
                    seen.insert(uuid);
                    continue;
                }
                changed += 1;
                writeln!(out, "{what} {uuid}: {} differed", fields.join(", "))?;
                Expect::Etag(found.etag)
            }
            Err(error) => return Err(error.into()),
        };
        bucket.put(&uuid, expect, &wanted).await?;
        seen.insert(uuid);
    }
    let mut after = None;
    loop {
        let page = bucket.find(after.into_iter().fold(Query::all(), Query::after)).await?;
        for record in page.records.iter().filter(|record| !seen.contains(&record.key)) {
            writeln!(out, "{what} {}: only here", record.key)?;
        }
        match page.next {
            Some(marker) => after = Some(marker),
            None => break,
        }
    }
    writeln!(out, "{what}s: {new} new, {changed} differed, {same} alike")?;
    Ok(())
}

/// Names the fields of `from` that `to` does not have.
fn dropped(
    out: &mut String,
    what: &str,
    uuid: &str,
    from: &Value,
    to: &Value,
    why: &str,
) -> std::fmt::Result {
    let fields =
        from.as_object().into_iter().flatten().filter(|(name, _)| to.get(name.as_str()).is_none());
    let fields: Vec<&str> = fields.map(|(name, _)| name.as_str()).collect();
    match fields.is_empty() {
        true => Ok(()),
        false => writeln!(out, "{what} {uuid}: {} {why}", fields.join(", ")),
    }
}

/// Returns the names of the fields that differ.
fn differing(ours: &Value, theirs: &Value) -> Vec<String> {
    let names =
        |value: &Value| value.as_object().map(|it| it.keys().cloned().collect::<BTreeSet<_>>());
    let all: BTreeSet<String> =
        names(ours).into_iter().flatten().chain(names(theirs).into_iter().flatten()).collect();
    all.into_iter().filter(|name| ours.get(name) != theirs.get(name)).collect()
}
