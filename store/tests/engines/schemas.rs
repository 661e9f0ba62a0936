// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The buckets that the tests use.

use serde_json::Value;
use store::{Bucket, Page, Schema, Store};

pub const VOLUMES: Schema = Schema {
    bucket: "volapi_volumes",
    version: 1,
    fields: &["owner", "name", "size", "state"],
    lists: &["refs"],
};
pub const OTHER: Schema = Schema { bucket: "other", version: 1, fields: &[], lists: &[] };

pub async fn volumes(store: &Store) -> Bucket<Value> {
    Bucket::open(store, VOLUMES).await.unwrap()
}

pub fn keys(page: &Page<Value>) -> Vec<&str> {
    page.records.iter().map(|record| record.key.as_str()).collect()
}
