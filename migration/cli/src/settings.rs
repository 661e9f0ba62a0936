// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `settings` and `set`, and who may migrate: flags of VMs in VMAPI.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use daemon::cli::screen::visible;
use daemon::cli::{Progress, Usage};
use daemon::exit;
use sdc_clients::vmapi::{VmQuery, Vmapi};
use sdc_clients::{Error, quoted};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::args::NAME;
use super::order::say;
use super::services::Services;
use migration_core::limits::SETTINGS;

/// The key of a VM's internal metadata.
const FLAG: &str = "user_migration_allowed";
/// How long the nodes may take to set it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Prints the settings of the data centre, or of a node.
pub(super) async fn show(services: &Services, cn: Option<&str>) -> anyhow::Result<ExitCode> {
    let cn = named(services, cn).await?;
    let settings = services.migrations.settings(cn.as_deref()).await?;
    say(&format!("{:#}", Value::Object(settings)))
}

/// Changes a setting, and prints all.
pub(super) async fn set(
    services: &Services,
    asked: (Option<&str>, Option<&str>),
    cn: Option<&str>,
) -> anyhow::Result<ExitCode> {
    let known = SETTINGS.join(", ");
    let (key, value) = match asked {
        (Some(key), _) if !SETTINGS.contains(&key) => {
            let what = format!("there is no setting {}; the settings are {known}", quoted(key));
            return Err(Usage(what).into());
        }
        (Some(key), Some(value)) => (key, value),
        (Some(key), None) => return Err(Usage(format!("a value for {key} is missing")).into()),
        (None, _) => {
            return Err(
                Usage(format!("which setting, and its value? The settings are {known}")).into()
            );
        }
    };
    let cn = named(services, cn).await?;
    let Ok(value) = serde_json::from_str::<Value>(value) else {
        let what =
            format!("expected a number, true, false or null for {key}, found {}", quoted(value));
        return Err(Usage(what).into());
    };
    let values = Map::from_iter([(key.to_owned(), value)]);
    let settings = services.migrations.set(cn.as_deref(), &values).await.map_err(wrong_value)?;
    say(&format!("{:#}", Value::Object(settings)))
}

/// A value that a setting cannot have is wrong usage.
fn wrong_value(error: Error) -> anyhow::Error {
    match error.peer_text().filter(|_| error.code() == Some("ValidationFailed")) {
        Some(text) => Usage(visible(&text)).into(),
        None => error.into(),
    }
}

/// Lets the owner of a VM migrate it, or not.
pub(super) async fn allow_vm(
    services: &Services,
    vm: &str,
    allowed: bool,
) -> anyhow::Result<ExitCode> {
    let vm = services.vm(vm).await?;
    let record = services.vmapi.record(&vm).await?;
    if !has(record.get("internal_metadata"), allowed) {
        services.vmapi.add_internal_metadata(&vm, &flag(allowed)).await?;
    }
    confirmed(services, async |vmapi| {
        let record = vmapi.record(&vm).await?;
        Ok(usize::from(!has(record.get("internal_metadata"), allowed)))
    })
    .await?;
    say(&match allowed {
        true => format!("Success - instance {vm} can now be user migrated."),
        false => format!("Success - user migration not allowed for instance {vm}."),
    })
}

/// Lets the owners of all VMs of a node migrate them, or not. One VM that refuses does not keep the others.
pub(super) async fn allow_cn(
    services: &Services,
    cn: &str,
    allowed: bool,
) -> anyhow::Result<ExitCode> {
    let cn = services.node(cn).await?;
    let query = VmQuery {
        server_uuid: Some(cn.clone()),
        state: Some("active".to_owned()),
        fields: ["state", "internal_metadata"].map(str::to_owned).into(),
        ..VmQuery::default()
    };
    let vms = services.vmapi.list_vms(&query).await?;
    let mut asked = BTreeSet::new();
    let (shown, mut refused) = (Progress::begin("setting the flag of each instance"), 0);
    for vm in vms.iter().filter(|vm| !has(vm.other.get("internal_metadata"), allowed)) {
        match services.vmapi.add_internal_metadata(&vm.uuid, &flag(allowed)).await {
            Ok(_) => drop(asked.insert(vm.uuid.clone())),
            Err(error) if error.status().is_some_and(|status| status < 500) => {
                refused += 1;
                eprintln!("{NAME}: {}: {}", vm.uuid, error.message());
            }
            Err(error) => return Err(error.into()),
        }
    }
    confirmed(services, async |vmapi| {
        let vms = vmapi.list_vms(&query).await?;
        let vms = vms.iter().filter(|vm| asked.contains(&vm.uuid));
        Ok(vms.filter(|vm| !has(vm.other.get("internal_metadata"), allowed)).count())
    })
    .await?;
    drop(shown);
    if refused > 0 {
        eprintln!("{NAME}: {refused} of {} instances were refused", vms.len());
        return Ok(ExitCode::from(exit::FAILED));
    }
    say(&match allowed {
        true => format!("Success - compute node {cn} now allows user migrations."),
        false => format!("Success - user migrations are no longer allowed on compute node {cn}."),
    })
}

async fn named(services: &Services, cn: Option<&str>) -> anyhow::Result<Option<String>> {
    match cn {
        Some(cn) => Ok(Some(services.node(cn).await?)),
        None => Ok(None),
    }
}

fn flag(allowed: bool) -> Map<String, Value> {
    Map::from_iter([(FLAG.to_owned(), json!(allowed))])
}

fn has(metadata: Option<&Value>, allowed: bool) -> bool {
    metadata.and_then(|it| it.get(FLAG)) == Some(&Value::Bool(allowed))
}

/// Waits until VMAPI has the flag for all: `missing` counts those for which it has not.
async fn confirmed(
    services: &Services,
    missing: impl AsyncFn(&Vmapi) -> Result<usize, Error>,
) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let missing = missing(&services.vmapi).await?;
        if missing == 0 {
            return Ok(());
        }
        if began.elapsed() >= PATIENCE {
            let waited = PATIENCE.as_secs();
            bail!(
                "VMAPI does not show the flag of {missing} instances after {waited} s; ask again"
            );
        }
        tokio::time::sleep(services.poll.min(Duration::from_secs(1))).await;
    }
}
