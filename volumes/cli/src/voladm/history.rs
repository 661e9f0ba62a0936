// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `history`: what has ended about snapshots of volumes.

use daemon::cli::names::find;
use daemon::cli::{Cell, Layout, Screen, Table, Tone, Usage};
use daemon::config::parse_span;
use jiff::Timestamp;
use sdc_clients::volapi::EndedSnapshot;

use super::services::Services;

const COLUMNS: [&str; 11] = [
    "ended", "volume", "snapshot", "what", "outcome", "by", "told", "program", "began", "uuid",
    "owner",
];
const USUAL: usize = 7;

/// Lists what has ended; of one volume, and since a time, where those are given.
pub(super) async fn list(
    services: &Services,
    volume: Option<&str>,
    since: Option<&str>,
    layout: &Layout,
    screen: Screen,
) -> anyhow::Result<String> {
    // A column that does not exist is refused before a service is asked.
    table(&[]).print(layout, screen)?;
    let since = since.map(|text| time(text, daemon::wall::now())).transpose()?;
    let volapi = services.volapi()?;
    let volume = match volume {
        // It may be gone.
        Some(typed) if uuid::Uuid::try_parse(typed).is_ok() => Some(typed.to_lowercase()),
        Some(typed) => {
            let volumes = volapi.list(None).await?;
            let known = volumes.iter().map(|it| (it.uuid.as_str(), it.name.as_str()));
            Some(find(&known.collect::<Vec<_>>(), typed)?)
        }
        None => None,
    };
    let found = volapi.history(volume.as_deref(), since.as_deref()).await?;
    Ok(table(&found).print(layout, screen)?)
}

fn table(found: &[EndedSnapshot]) -> Table {
    let mut table = Table::new(&COLUMNS).usually(USUAL);
    for entry in found {
        let tone = if entry.outcome == "successful" { Tone::Good } else { Tone::Bad };
        table.row(vec![
            entry.ended.as_str().into(),
            entry.volume_name.as_str().into(),
            entry.snapshot_name.as_str().into(),
            entry.what.as_str().into(),
            Cell::toned(entry.outcome.as_str(), tone),
            entry.by.clone().into(),
            entry.error.clone().into(),
            entry.program.clone().into(),
            entry.began.clone().into(),
            entry.volume_uuid.as_str().into(),
            entry.owner_uuid.as_str().into(),
        ]);
    }
    table
}

/// Returns a time, or the one that is so long ago, as ISO 8601.
fn time(text: &str, now: Timestamp) -> Result<String, Usage> {
    let at = match text.parse::<Timestamp>() {
        Ok(at) => at,
        Err(_) => {
            let span = parse_span(text)
                .map_err(|why| Usage(format!("--since: {why}, or a time in ISO 8601")))?;
            now.checked_sub(span).unwrap_or(Timestamp::UNIX_EPOCH)
        }
    };
    Ok(format!("{at:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_what_ended_for_whom_and_why() {
        let entry = EndedSnapshot {
            ended: "2026-03-01T01:02:03.000Z".into(),
            what: "snapshot".into(),
            outcome: "failed".into(),
            volume_name: "data".into(),
            snapshot_name: "first".into(),
            by: Some("ops".into()),
            error: Some("no room".into()),
            ..EndedSnapshot::default()
        };
        let screen = Screen { is_terminal: false, colour: false };
        let layout = Layout { no_header: true, ..Layout::default() };
        let row = table(&[entry]).print(&layout, screen).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        let want = [
            "2026-03-01T01:02:03.000Z",
            "data",
            "first",
            "snapshot",
            "failed",
            "ops",
            "no",
            "room",
        ];
        assert_eq!(words, want);
    }

    #[test]
    fn a_time_is_a_span_or_a_date() {
        let now: Timestamp = "2026-03-02T00:00:00Z".parse().unwrap();
        assert_eq!(time("1h", now).unwrap(), "2026-03-01T23:00:00.000Z");
        assert_eq!(time("2026-03-01T01:02:03Z", now).unwrap(), "2026-03-01T01:02:03.000Z");
        assert!(time("noon", now).is_err());
    }
}
