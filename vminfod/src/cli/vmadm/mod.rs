// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The read-only commands of the shipped `vmadm`, byte for byte: `list`, `lookup`, `get`, `json`,
//! `events`.
//!
//! Operators' scripts parse what vmadm prints, so columns, widths and texts are a contract; recorded runs hold them to
//! it (`testbed conform vmadm-cli`, where the few deviations have their reasons).
//!
//! The modules below are pure: arguments and objects in, text out. The objects come from a supplier
//! ([`super::supply`]).
//!
//! Where the shipped program throws an exception (a null in a filter, an invalid regular expression),
//! this one prints one line and exits with 1.

pub mod events;
pub mod fields;
pub mod filter;
pub mod list;
pub mod lookup;
pub mod options;
mod outcome;
pub mod regexp;
pub mod sort;
pub mod usage;
pub mod value;
pub mod vm;

use std::time::Duration;

use super::supply::Supplier;
use events::{Printer, Program};
use list::Listing;
use lookup::Lookup;
use options::{EventsOptions, GetOptions};
pub use outcome::{Failure, Printed};

/// How long the filters of one command may take.
const LIMIT: Duration = Duration::from_secs(10);

/// A parsed command.
#[derive(Debug)]
pub enum Plan {
    /// `list`
    List(Listing),
    /// `lookup`
    Lookup(Lookup),
    /// `get` of this VM
    Get(String),
    /// `events`
    Events(Printer),
}

/// Parses the arguments after the program's name.
pub fn plan(args: &[String]) -> Result<Plan, Failure> {
    let Some((command, args)) = args.split_first() else { return Err(Failure::Usage(None)) };
    match command.as_str() {
        "list" => Ok(Plan::List(Listing::new(options::parse(args)?, false)?)),
        "lookup" => Ok(Plan::Lookup(Lookup::new(options::parse(args)?)?)),
        "get" | "json" => get(command, options::parse(args)?),
        "events" => {
            let EventsOptions { full, json, ready, uuid, .. } = options::parse(args)?;
            // An operand that does not look like a UUID is ignored.
            let only = uuid.filter(|text| lookup::is_uuid(text));
            Ok(Plan::Events(Printer { tool: Program::Vmadm, full, json, ready, only }))
        }
        "help" | "-h" | "-?" => Err(Failure::Usage(None)),
        other if usage::is_not_here(other) => Err(Failure::Failed(format!(
            "{other} changes the node or leaves it, and this program only reads: use the platform's vmadm"
        ))),
        other => Err(Failure::Usage(Some(format!("Invalid command: \"{other}\".")))),
    }
}

/// `get` of the VM with this uuid.
pub fn get(command: &str, options: GetOptions) -> Result<Plan, Failure> {
    let missing = || Failure::Usage(Some(format!("Invalid or missing UUID for {command}")));
    options.uuid.filter(|uuid| lookup::is_uuid(uuid)).map(Plan::Get).ok_or_else(missing)
}

/// Runs any command but `events`.
pub async fn run(plan: Plan, supplier: &dyn Supplier) -> Result<String, Failure> {
    match plan {
        Plan::List(listing) => {
            let vms = supplier.objects(None).await?;
            within(LIMIT, move || listing.print(vms)).await
        }
        Plan::Lookup(lookup) => {
            let vms = supplier.objects(None).await?;
            within(LIMIT, move || lookup.print(vms)).await
        }
        Plan::Get(uuid) => match supplier.objects(Some(&uuid)).await?.pop() {
            Some(vm) => Ok(lookup::json_text(&vm.into())),
            None => Err(Failure::failed(format!("zoneadm: {uuid}: No such zone configured"))),
        },
        Plan::Events(_) => Err(Failure::failed("events have no end")),
    }
}

/// Runs `pick` on a thread of its own and gives up after `limit`. The thread ends with the program.
async fn within<T: Send + 'static>(
    limit: Duration,
    pick: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let picking = tokio::task::spawn_blocking(pick);
    match tokio::time::timeout(limit, picking).await {
        Ok(Ok(picked)) => picked,
        Ok(Err(panicked)) => Err(Failure::failed(panicked.to_string())),
        Err(_elapsed) => Err(Failure::failed(format!(
            "the filters were not done after {}: simplify the regular expressions among them",
            daemon::cli::span(limit)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn filters_that_never_end_are_given_up() {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let endless = move || held.recv().map_err(|gone| Failure::failed(gone.to_string()));
        let result = within(Duration::from_millis(20), endless).await;
        drop(hold);
        assert!(matches!(result, Err(Failure::Failed(text)) if text.contains("20ms")));
        let done = within(Duration::from_secs(60), || Ok(1)).await;
        assert_eq!(done, Ok(1));
    }
}
