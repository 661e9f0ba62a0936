// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The end of the days in which the data centre's agents are replaced: from then on no program is let in by a token
//! that is not its own.

use store::{Error, Expect, Query};

use super::enrolment::{Enrolment, For};
use super::members::Required;
use crate::refused::Refused;

const ROW: &str = "all";

impl Enrolment {
    /// Returns since when it is so, if it is.
    pub async fn required(&self) -> Result<Option<i64>, Refused> {
        match self.required.get(ROW).await {
            Ok(found) => Ok(Some(found.value.since)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Has it so from now on: the tokens for any node end.
    pub async fn require(&self) -> Result<(), Refused> {
        let row = Required { since: self.holder.now() };
        match self.required.put(ROW, Expect::Absent, &row).await {
            Ok(_) | Err(Error::EtagConflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        tracing::warn!(target: daemon::log::AUDIT, audit = true, "an operator ended the tokens for any node");
        for row in self.tokens.find(Query::all()).await?.records {
            if row.value.is_for == For::AnyCn {
                match self.tokens.delete(&row.key, Expect::Anything).await {
                    Ok(()) | Err(Error::NotFound { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Has it so no more.
    pub async fn require_no_more(&self) -> Result<(), Refused> {
        tracing::warn!(target: daemon::log::AUDIT, audit = true, "an operator allows tokens for any node again");
        match self.required.delete(ROW, Expect::Anything).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Refuses a token for any node where there are to be none.
    pub(super) async fn may_make(&self, is_for: For) -> Result<(), Refused> {
        if is_for != For::AnyCn || self.required().await?.is_none() {
            return Ok(());
        }
        let why = "only a token of one node lets an agent in since trust require: sdc-migrate trust token CN";
        Err(Refused::coded(409, "Required", why))
    }
}
