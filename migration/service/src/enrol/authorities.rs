// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The authorities, and where they are kept: in a file beside the store's, of the service's own user alone, or in one
//! row for all instances where the store is PostgreSQL.

use std::path::PathBuf;

use daemon::disk;
use serde::{Deserialize, Serialize};
use store::{Bucket, Error, Expect, Schema, Store};
use trust::{Authority, read_private};

const AUTHORITIES: Schema =
    Schema { bucket: "trust_authorities", version: 1, fields: &[], lists: &[] };
const ROW: &str = "all";
/// Bytes of the file.
const LONGEST: usize = 1 << 20;

/// The authorities, the oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Authorities {
    pub all: Vec<Authority>,
}

/// Where they are.
#[derive(Clone, Debug)]
pub enum Place {
    File(PathBuf),
    Row(Bucket<Authorities>),
}

/// Why they cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    #[error(transparent)]
    Store(#[from] Error),
    #[error(transparent)]
    File(#[from] trust::Invalid),
    #[error("{}: {source}", path.display())]
    Unwritten { path: PathBuf, source: std::io::Error },
    #[error("the work was aborted")]
    Aborted,
}

impl Place {
    /// Returns the row of this store.
    pub async fn row(store: &Store) -> Result<Place, Error> {
        Ok(Place::Row(Bucket::open(store, AUTHORITIES).await?))
    }

    /// Reads them; none before there are any.
    pub async fn read(&self) -> Result<Authorities, Lost> {
        match self {
            Place::File(path) => {
                let path = path.clone();
                let read = disk::blocking(move || read_private(&path)).await;
                Ok(read.ok_or(Lost::Aborted)??.unwrap_or_default())
            }
            Place::Row(bucket) => match bucket.get(ROW).await {
                Ok(found) => Ok(found.value),
                Err(Error::NotFound { .. }) => Ok(Authorities::default()),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Replaces these by those. After a concurrent replacement nothing is written.
    /// Fails with `Lost`, also where they are not as `before` any more.
    pub async fn replace(&self, before: &Authorities, after: &Authorities) -> Result<(), Lost> {
        match self {
            Place::File(path) => {
                let (path, after) = (path.clone(), after.clone());
                let at = path.clone();
                let write = move || disk::write_atomically(&path, &after, LONGEST);
                let written = disk::blocking(write).await.ok_or(Lost::Aborted)?;
                written.map_err(|source| Lost::Unwritten { path: at, source })
            }
            Place::Row(bucket) => {
                let expect = match bucket.get(ROW).await {
                    Ok(found) if found.value.all.len() == before.all.len() => {
                        Expect::Etag(found.etag)
                    }
                    Ok(_) => return Err(Lost::Aborted),
                    Err(Error::NotFound { .. }) => Expect::Absent,
                    Err(error) => return Err(error.into()),
                };
                bucket.put(ROW, expect, after).await?;
                Ok(())
            }
        }
    }
}
