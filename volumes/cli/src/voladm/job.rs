// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What came of a job that VMAPI ordered. VMAPI answers before anything is done.

use std::time::Duration;

use anyhow::bail;
use daemon::cli::span;
use sdc_clients::Http;
use sdc_clients::http::user_agent;
use sdc_clients::vmapi::Ordered;
use sdc_clients::workflow::Workflow;
use tokio::time::{Instant, sleep};

use super::args::NAME;
use super::shell::word;

/// A job that takes longer is left to itself.
const PATIENCE: Duration = Duration::from_secs(900);
/// Between two polls of a job: the first, and the longest.
const LOOK: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// Waits until the job has ended well.
pub(super) async fn done(ordered: &Ordered) -> anyhow::Result<()> {
    let job = word(&ordered.job_uuid);
    let Some(url) = &ordered.workflow else {
        bail!(
            "job {job} is ordered, and VMAPI does not return the address of the workflow API: check whether it is done"
        );
    };
    let workflow =
        Workflow::new(Http::new(url, &user_agent(NAME, env!("CARGO_PKG_VERSION"), None))?);
    let (began, [mut wait, longest]) = (Instant::now(), LOOK);
    loop {
        let found = workflow.get_job(&ordered.job_uuid).await?;
        if found.execution == "succeeded" {
            return Ok(());
        }
        if found.is_over() {
            let why = found.error().unwrap_or_else(|| "it has no error".to_owned());
            bail!("job {job} {}: {why}", word(&found.execution));
        }
        if began.elapsed() >= PATIENCE {
            bail!("job {job} is {} after {}; it goes on", word(&found.execution), span(PATIENCE));
        }
        sleep(wait).await;
        wait = (wait * 2).min(longest);
    }
}
