// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/data`: the raw parts that all objects are made of (RFD 39, "GET /data"). One object: `sysinfo` as
//! it is, each source of a zone by zone name, `zfs` by dataset; made entry by entry.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::pieces::pieces;
use crate::reconcile::asks::Held;
use vm_model::datasets::Datasets;
use vm_model::js::{number, to_ascii};
use vm_model::origin::Origin;
use vm_model::parse::config_json::{self, FIELDS};
use vm_model::parse::zfs_list::Row;
use vm_model::parse::zone_xml::Element;
use vm_model::parts::Parts;

/// A source of a zone: its name, and its part as JSON.
type Part = (Origin, fn(&Parts) -> Value);

const PARTS: [Part; 7] = [
    (Origin::Zoneadm, |parts| {
        let zone = &parts.zone;
        json!({
            "zoneid": zone.zoneid, "zonename": zone.zonename, "state": zone.zone_state, "zonepath": zone.zonepath,
            "uuid": zone.uuid, "brand": zone.brand, "zonedid": zone.zonedid,
        })
    }),
    (Origin::ZoneXml, |parts| {
        let items: Vec<Value> = parts.xml.elements().map(element).collect();
        json!({"zone": attributes(parts.xml.zone()), "items": items})
    }),
    (Origin::Kstat, |parts| match &parts.kstat {
        Some(kstat) => json!({
            "boot_time": kstat.boot_time.map(number), "init_restarts": kstat.init_restarts, "init_pid": kstat.init_pid,
        }),
        None => Value::Null,
    }),
    (Origin::Config, |parts| {
        let text = |field| parts.config.text(field).map_or(Value::Null, config_json::value);
        FIELDS.into_iter().map(|field| (field.to_owned(), text(field))).collect()
    }),
    (Origin::LastExited, |parts| match &parts.lastexited {
        Some(last) => json!({"status": last.status, "timestamp": last.timestamp()}),
        None => Value::Null,
    }),
    (Origin::Times, |parts| json!({"last_modified": parts.stamps.last_modified})),
    (Origin::Receiving, |parts| match &parts.receiving {
        Some(receiving) => json!({"zfs_filesystem": receiving.zfs_filesystem}),
        None => Value::Null,
    }),
];

/// Returns the answer in pieces.
pub(super) fn body(held: Held) -> impl Iterator<Item = Bytes> + Send {
    let Held { sysinfo, datasets, parts } = held;
    let head = format!("{{\"sysinfo\":{}", to_ascii(sysinfo.value()));
    let zones = PARTS.into_iter().flat_map(move |(origin, part)| {
        let entries = parts.clone().into_iter();
        section(origin.name(), entries.map(move |(name, parts)| entry(&name, &part(&parts))))
    });
    let mut rows: Vec<Row> = datasets.rows().cloned().collect();
    rows.sort_by(|a, b| a.name().cmp(b.name()));
    let rows = rows.into_iter().map(move |row| entry(row.name(), &dataset(&datasets, &row)));
    let zfs = section(Origin::Datasets.name(), rows);
    let mut texts = [head].into_iter().chain(zones).chain(zfs).chain(["}".to_owned()]);
    pieces(move |piece| match texts.next() {
        Some(text) => {
            piece.extend_from_slice(text.as_bytes());
            true
        }
        None => false,
    })
}

/// `,"name":{"key":value,…}`
fn section(
    name: &'static str,
    entries: impl Iterator<Item = String>,
) -> impl Iterator<Item = String> {
    let mut comma = "";
    let inner = entries.map(move |entry| format!("{}{entry}", std::mem::replace(&mut comma, ",")));
    [format!(",\"{name}\":{{")].into_iter().chain(inner).chain(["}".to_owned()])
}

fn entry(key: &str, value: &Value) -> String {
    format!("{}:{}", to_ascii(key), to_ascii(value))
}

fn dataset(datasets: &Datasets, row: &Row) -> Value {
    let mut columns: Map<String, Value> =
        row.columns().map(|(name, text)| (name.to_owned(), Value::from(text))).collect();
    let snapshots: Map<String, Value> = datasets
        .snapshots(row.name())
        .map(|one| {
            let amount = |value: Option<f64>| value.map(number);
            let value =
                json!({"creation": amount(one.created()), "userrefs": amount(one.userrefs()), "written": amount(one.written())});
            (one.name.to_owned(), value)
        })
        .collect();
    if !snapshots.is_empty() {
        columns.insert("snapshots".to_owned(), Value::Object(snapshots));
    }
    Value::Object(columns)
}

fn element(element: Element<'_>) -> Value {
    let inside: Vec<Value> = element.inside().map(self::element).collect();
    json!({
        "element": element.name(), "line": element.line(), "attributes": attributes(element), "inside": inside,
    })
}

fn attributes(element: Element<'_>) -> Value {
    let list = element.attributes().map(|(name, value)| (name.to_owned(), Value::from(value)));
    Value::Object(list.collect())
}
