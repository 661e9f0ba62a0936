// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `vminfod list|lookup|get`: vmadm's options and our own. The objects come from the daemon or, if it is
//! off, from the node.

use daemon::cli::{Screen, names};
use daemon::exit;
use daemon::log::chain;
use sdc_clients::vminfod::VmFields as _;

use super::args::{GetArgs, ListArgs, LookupArgs, NAME, SourceArgs};
use super::client_config::ClientConfig;
use super::either::Either;
use super::supply::Supplier;
use super::vmadm::list::Listing;
use super::vmadm::lookup::Lookup;
use super::vmadm::{self, Failure, Plan, Printed};

/// `list`
pub async fn list(args: ListArgs, screen: Screen) -> Printed {
    let plan = Listing::new(args.options, args.json).map(Plan::List);
    run(plan, None, args.source, screen).await
}

/// `lookup`
pub async fn lookup(args: LookupArgs, screen: Screen) -> Printed {
    run(Lookup::new(args.options).map(Plan::Lookup), None, args.source, screen).await
}

/// `get`
pub async fn get(args: GetArgs, screen: Screen) -> Printed {
    let typed = args.options.uuid.clone();
    run(vmadm::get("get", args.options), typed, args.source, screen).await
}

/// Runs a command; `typed` may name its VM otherwise than by its uuid.
async fn run(
    plan: Result<Plan, Failure>,
    typed: Option<String>,
    source: SourceArgs,
    screen: Screen,
) -> Printed {
    let config = match ClientConfig::of(&source.reach, source.root) {
        Ok(config) => config,
        Err(error) => return Printed::failed(format!("{NAME}: {}\n", chain(&error)), exit::USAGE),
    };
    let result = async {
        let supplier = Either::of(&config, NAME)?;
        let supplier = Either { direct: source.direct, wait: source.wait, ..supplier };
        let plan = match (plan, typed) {
            (Err(not_a_uuid), Some(typed)) => {
                Plan::Get(named(&supplier, &typed).await?.ok_or(not_a_uuid)?)
            }
            (plan, _) => plan?,
        };
        vmadm::run(plan, &supplier).await
    };
    match result.await.map(|stdout| screen.harmless(&stdout)) {
        Err(Failure::Usage(wrong)) => {
            let wrong = wrong.unwrap_or_default();
            Printed::failed(format!("{NAME}: {wrong}\n"), exit::USAGE)
        }
        other => Printed::of(other, NAME),
    }
}

/// Returns the uuid of the VM that is meant by an alias or by the beginning of a uuid, if one VM is. vmadm
/// knows neither.
async fn named(supplier: &Either, typed: &str) -> Result<Option<String>, Failure> {
    let vms = supplier.objects(None).await?;
    let known: Vec<_> =
        vms.iter().filter_map(|vm| Some((vm.uuid()?, vm.alias().unwrap_or_default()))).collect();
    Ok(names::find(&known, typed).ok())
}
