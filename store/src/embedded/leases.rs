// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Leases: their numbers on the disk, their ends in memory.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redb::{ReadableTable as _, TableDefinition};
use tokio::time::Instant;

use super::file::File;
use crate::engine::Fence;
use crate::error::Error;

/// Lease → the number under which it was held last.
const LEASES: TableDefinition<'static, &str, i64> = TableDefinition::new("leases");

/// The ends of the leases, and the numbers under which they are held now.
#[derive(Debug, Default)]
pub(super) struct Leases(Mutex<HashMap<String, Held>>);

#[derive(Debug)]
struct Held {
    holder: String,
    number: i64,
    until: Instant,
}

impl Leases {
    fn held(&self) -> MutexGuard<'_, HashMap<String, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails unless the lease is held under this number. It stays so until the transaction ends, as a
    /// takeover needs one of its own.
    pub(super) fn check(&self, fence: &Fence) -> Result<(), Error> {
        let held = self.held();
        let is_held = held
            .get(&fence.lease)
            .is_some_and(|it| it.number == fence.number && Instant::now() < it.until);
        let (lease, number) = (fence.lease.clone(), fence.number);
        if is_held { Ok(()) } else { Err(Error::Fenced { lease, number }) }
    }

    /// Renews the lease, or takes it under the next number.
    pub(super) fn claim(
        &self,
        file: &File,
        lease: &str,
        holder: &str,
        duration: Duration,
    ) -> Result<Option<i64>, Error> {
        file.write(|txn| {
            let now = Instant::now();
            if let Some(held) = self.held().get_mut(lease)
                && now < held.until
            {
                if held.holder != holder {
                    return Ok(None);
                }
                held.until = now + duration;
                return Ok(Some(held.number));
            }
            let mut numbers = txn.open_table(LEASES)?;
            let number = numbers.get(lease)?.map_or(0, |number| number.value()) + 1;
            numbers.insert(lease, number)?;
            let held = Held { holder: holder.to_owned(), number, until: now + duration };
            self.held().insert(lease.to_owned(), held);
            Ok(Some(number))
        })
    }

    /// Ends the lease, if it is held under this number.
    pub(super) fn release(&self, fence: &Fence) {
        self.held().retain(|lease, held| *lease != fence.lease || held.number != fence.number);
    }
}
