// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How the lab asks, and how it waits.

use std::time::Duration;

use sdc_clients::Error;
use tokio::time::Instant;

use super::error::LabError;

/// The user agent of the lab's own requests.
pub const OWN_AGENT: &str = "testbed";
/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(25);

/// Looks at a condition until it holds; an error ends the wait.
pub async fn until<F, Fut>(what: &str, within: Duration, mut holds: F) -> Result<(), LabError>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<bool, LabError>>,
{
    let end = Instant::now() + within;
    while !holds().await? {
        if Instant::now() > end {
            return Err(LabError::TooLate { what: what.to_owned(), within });
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// A NIC, VM or other thing that is gone is not an error here.
pub fn found<T>(result: Result<T, Error>, what: &str) -> Result<Option<T>, LabError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(err) if err.is_not_found_resource() => Ok(None),
        Err(err) => Err(LabError::request(what)(err)),
    }
}
