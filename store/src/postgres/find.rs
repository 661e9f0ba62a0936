// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Searches.

use futures_util::TryStreamExt as _;
use tokio_postgres::types::ToSql;

use super::pool::{Connection, Failure};
use crate::engine::{Row, Rows};
use crate::limits;
use crate::query::Search;

/// Reads a record.
pub(super) async fn get(
    mut connection: Connection,
    bucket: &str,
    key: &str,
) -> Result<Option<Row>, Failure> {
    let select = "SELECT key, etag, value FROM store.record WHERE bucket = $1 AND key = $2";
    let client = connection.client();
    let select = client.prepare_cached(select).await?;
    let row = client.query_opt(&select, &[&bucket, &key]).await?;
    connection.release();
    Ok(row.map(|row| as_row(&row)))
}

fn as_row(row: &tokio_postgres::Row) -> Row {
    Row { key: row.get(0), etag: row.get(1), text: row.get(2) }
}

/// Reads a page.
pub(super) async fn find(mut connection: Connection, search: &Search) -> Result<Rows, Failure> {
    let limit = i64::try_from(search.limit).unwrap_or(i64::MAX);
    let mut values: Vec<&(dyn ToSql + Sync)> = vec![&search.bucket, &search.order, &limit];
    let mut only = String::new();
    if let Some((value, key)) = &search.after {
        let sign = if search.is_descending { '<' } else { '>' };
        only +=
            &format!(" AND (o.value, o.key) {sign} (${}, ${})", values.len() + 1, values.len() + 2);
        values.extend([value as &(dyn ToSql + Sync), key]);
    }
    for (field, value) in &search.conditions {
        only += &format!(
            " AND EXISTS (SELECT FROM store.entry c WHERE c.bucket = o.bucket AND c.key = o.key \
             AND c.field = ${} AND c.value = ${})",
            values.len() + 1,
            values.len() + 2
        );
        values.extend([field as &(dyn ToSql + Sync), value]);
    }
    let way = if search.is_descending { "DESC" } else { "ASC" };
    let select = format!(
        "SELECT r.key, r.etag, r.value, o.value FROM store.entry o \
         JOIN store.record r ON r.bucket = o.bucket AND r.key = o.key \
         WHERE o.bucket = $1 AND o.field = $2{only} ORDER BY o.value {way}, o.key {way} LIMIT $3"
    );
    let client = connection.client();
    let select = client.prepare_cached(&select).await?;
    let rows = client.query_raw(&select, values).await?;
    let mut rows = std::pin::pin!(rows);
    let (mut found, mut bytes) = (Rows::default(), 0);
    while let Some(row) = rows.try_next().await? {
        let next = as_row(&row);
        bytes += next.text.len();
        if bytes > limits::PAGE_BYTES && !found.rows.is_empty() {
            return Ok(found); // and the connection is closed, with the rest of the rows
        }
        found.end = Some((row.get(3), next.key.clone()));
        found.rows.push(next);
    }
    if found.rows.len() < search.limit {
        found.end = None;
    }
    connection.release();
    Ok(found)
}
