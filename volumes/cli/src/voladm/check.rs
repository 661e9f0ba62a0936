// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `check`: reads what is there, and prints what does not fit.

use daemon::cli::{Layout, Progress, Screen, Table};
use daemon::text::counted;
use sdc_clients::cnapi::DEFAULT_SERVER;
use sdc_clients::vmapi::VmQuery;
use serde_json::json;

use super::judge::{Facts, Finding, findings};
use super::services::Services;
use super::zones::{by_uuid, records};

const COLUMNS: [&str; 4] = ["kind", "what", "detail", "repair"];

/// Returns what was found as text, and whether anything was.
pub(super) async fn check(
    services: &Services,
    layout: &Layout,
    screen: Screen,
) -> anyhow::Result<(String, bool)> {
    // A column that does not exist is refused before any request.
    table(&[]).print(layout, screen)?;
    let facts = {
        let _shown = Progress::begin("reading volumes, VMs and tickets");
        facts(services).await?
    };
    let found = findings(&facts, daemon::wall::now());
    let is_for_people = !layout.json && !layout.asks_for_table();
    if found.is_empty() && is_for_people {
        let count = counted(facts.volumes.len(), "volume", "volumes");
        return Ok((format!("{count}: everything fits together\n"), false));
    }
    if is_for_people && screen.is_terminal {
        return Ok((found.iter().map(line).collect(), true));
    }
    Ok((table(&found).print(layout, screen)?, !found.is_empty()))
}

/// Returns a finding as people read it, however narrow their terminal: what is wrong, and below it what they type.
fn line(Finding { kind, what: _, detail, repair }: &Finding) -> String {
    format!("{kind}: {detail}\n  {repair}\n")
}

/// Storage VMs are read before volumes, whose records are older than they.
async fn facts(services: &Services) -> anyhow::Result<Facts> {
    let (vmapi, volapi) = (services.vmapi()?, services.volapi()?);
    let query = VmQuery {
        state: Some("active".to_owned()),
        predicate: Some(json!({ "eq": ["alias", "nfs-shared-volume-*"] })),
        fields: vec!["*".to_owned()],
        ..VmQuery::default()
    };
    let zones = by_uuid(vmapi.records(&query).await?);
    let tickets = services.cnapi()?.list_tickets(DEFAULT_SERVER).await?;
    // Reservations before volumes: what a reservation becomes is seen, or the reservation is.
    let reservations = volapi.reservations().await?;
    let (volumes, troubles) = (volapi.list(None).await?, volapi.troubles().await?);
    let uuids = volumes
        .iter()
        .flat_map(|it| it.refs.iter().chain(std::iter::once(&it.vm_uuid)).map(String::as_str));
    let named = records(&vmapi, uuids).await?;
    Ok(Facts { volumes, troubles, reservations, zones, named, tickets })
}

fn table(found: &[Finding]) -> Table {
    let mut table = Table::new(&COLUMNS);
    for Finding { kind, what, detail, repair } in found {
        let cells = [*kind, what, detail, repair];
        table.row(cells.map(Into::into).into());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // V84
    fn people_read_the_command_below_what_is_wrong() {
        let finding = Finding {
            kind: "failed",
            what: "v".to_owned(),
            detail: "volume data cannot be used".to_owned(),
            repair: "sdc-voladm restart-volume-zone --force v".to_owned(),
        };
        let want =
            "failed: volume data cannot be used\n  sdc-voladm restart-volume-zone --force v\n";
        assert_eq!(line(&finding), want);
    }
}
