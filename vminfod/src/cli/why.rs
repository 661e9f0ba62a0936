// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `vminfod why UUID [FIELD]`: the source of a field, when it was last read, whether it is stale. If
//! the daemon is off, only the sources are known.

use std::time::Duration;

use anyhow::bail;
use daemon::cli::{Cell, Screen, Table, Tone, Usage, span};
use daemon::needs::{Need, find};
use sdc_clients::http::Call;
use sdc_clients::quoted;
use sdc_clients::vminfod::Left;
use serde_json::Value;

use super::args::{NAME, WhyArgs};
use super::show::{daemon, name_of};
use super::supply::SupplyError;
use crate::reconcile::witness::sets_aside;
use vm_model::compose::origin;

const COLUMNS: [&str; 5] = ["field", "source", "read", "stale", "error"];

/// Prints the table.
pub async fn run(args: &WhyArgs, screen: Screen) -> anyhow::Result<String> {
    let daemon = daemon(&args.reach)?;
    let asked = async {
        let name = name_of(&daemon, &args.uuid).await?;
        Ok::<_, anyhow::Error>(daemon.object(Call::get(&["why", &name]), "fields").await?)
    };
    let answer = match asked.await {
        Ok(answer) => Some(answer),
        Err(error) => match error.downcast_ref() {
            // Without the daemon the sources are the same for every VM.
            Some(SupplyError::Refused(_)) => {
                eprintln!(
                    "{NAME}: vminfod is not running: when the sources were read is not known"
                );
                None
            }
            Some(SupplyError::Status(404)) => bail!("there is no VM {}", args.uuid),
            _ => return Err(error),
        },
    };
    if let Some(says) = answer.as_ref().and_then(disagreement) {
        eprintln!("{NAME}: {says}");
    }
    if let Some((need, command)) = answer.as_ref().and_then(end) {
        eprintln!("{NAME}: {}\nNext: {command}", need.says);
    }
    let fields = fields(answer.as_ref(), args.field.as_deref())?;
    let mut table = Table::new(&COLUMNS);
    for (field, source) in fields {
        table.row(row(&field, source.as_deref(), answer.as_ref()));
    }
    Ok(table.print(&args.list.layout(), screen)?)
}

/// Returns what the witnesses of the zone say, where one of them lacks it.
fn disagreement(answer: &Value) -> Option<String> {
    let witnesses = answer.get("witnesses")?;
    let says = |name: &str| match witnesses[name].as_bool() {
        Some(true) => "there",
        Some(false) => "missing",
        None => "not read",
    };
    let [row, index, xml] = ["row", "index", "xml"].map(says);
    let dataset = witnesses["dataset"].as_str().unwrap_or("none");
    let is_whole = [row, index, xml].iter().all(|says| *says == "there");
    (!is_whole).then(|| {
        format!("zoneadm's row: {row}; line in /etc/zones/index: {index}; XML: {xml}; dataset: {dataset}")
    })
}

/// Returns the state of a VM of which only XML or dataset is left, and what ends it. With both its line was lost, and
/// nothing is to go.
fn end(answer: &Value) -> Option<(&'static Need, String)> {
    let left = Left::of(&answer["witnesses"])?;
    let need = |name: &str| find(name).expect("invariant: the table has it");
    match (left.has_zone, left.dataset) {
        (false, Some(dataset)) => Some((need("vminfod-left-dataset"), sets_aside(&dataset))),
        (true, None) if left.is_stray => {
            let need = need("vminfod-stray-xml");
            let xml = format!("/etc/zones/{}.xml", answer["uuid"].as_str()?);
            Some((need, need.command_for(&[("XML", &xml)])))
        }
        _ => None,
    }
}

/// Fields and their sources: all that the VM has, or `asked` only.
fn fields(
    answer: Option<&Value>,
    asked: Option<&str>,
) -> Result<Vec<(String, Option<String>)>, Usage> {
    let has = answer.and_then(|answer| answer.get("fields")).and_then(Value::as_object);
    let Some(asked) = asked else {
        let own = |text: &str| text.to_owned();
        return Ok(match has {
            Some(has) => {
                has.iter().map(|(field, source)| (own(field), source.as_str().map(own))).collect()
            }
            None => origin::all().map(|(field, source)| (own(field), Some(own(source)))).collect(),
        });
    };
    let known = origin::source_of(asked);
    let top = asked.split('.').next().unwrap_or_default();
    let given = has.and_then(|has| has.get(top)).and_then(Value::as_str);
    // A member may have another source than its list; only the table of sources knows.
    let source = if asked == top { given.or(known) } else { known.or(given) };
    match source {
        Some(source) => Ok(vec![(asked.to_owned(), Some(source.to_owned()))]),
        None => Err(Usage(format!("no VM has a field {}", quoted(asked)))),
    }
}

fn row(field: &str, source: Option<&str>, answer: Option<&Value>) -> Vec<Cell> {
    let reading = source.and_then(|source| answer?.get("sources")?.get(source));
    let reading = reading.unwrap_or(&Value::Null);
    let read = reading["read_ms_ago"].as_u64().map(Duration::from_millis);
    let stale = match reading["stale"].as_bool() {
        Some(true) => Cell::toned("stale", Tone::Odd),
        Some(false) => Cell::toned("no", Tone::Good),
        None => Value::Null.into(),
    };
    let error = match &reading["error"] {
        Value::Null => Value::Null.into(),
        error => Cell::toned(error.clone(), Tone::Bad),
    };
    let read = read.map(|time| format!("{} ago", span(time)));
    vec![field.into(), source.into(), read.into(), stale, error]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn with_and_without_a_daemon() {
        let answer = json!({
            "uuid": "u",
            "sources": {"zfs": {"read_ms_ago": 2_300, "stale": true, "error": "exit status 1"}},
            "fields": {"quota": "zfs", "disks": "zone_xml", "alias": "zone_xml"},
        });
        let all = fields(Some(&answer), None).unwrap();
        assert_eq!(all.len(), 3);
        let one = |answer, field| fields(answer, Some(field)).unwrap()[0].1.clone();
        assert_eq!(one(Some(&answer), "disks.0.size").as_deref(), Some("zfs"));
        assert_eq!(one(None, "disks.0.path").as_deref(), Some("zone_xml"));
        let of = |xml: Value| {
            let witnesses = json!({"row": true, "index": true, "xml": xml, "dataset": "zones/u"});
            disagreement(&json!({"witnesses": witnesses}))
        };
        assert_eq!((of(json!(true)), disagreement(&answer)), (None, None));
        let says =
            "zoneadm's row: there; line in /etc/zones/index: there; XML: missing; dataset: zones/u";
        assert_eq!(of(json!(false)).as_deref(), Some(says));
        assert!(fields(None, Some("bogus")).is_err());
        assert!(fields(None, None).unwrap().len() > 80);
        let mut table = Table::new(&COLUMNS);
        table.row(row("quota", Some("zfs"), Some(&answer)));
        table.row(row("alias", Some("zone_xml"), None));
        let screen = Screen { is_terminal: false, colour: false };
        assert_eq!(
            table.print(&daemon::cli::Layout::default(), screen).unwrap(),
            "FIELD  SOURCE    READ    STALE  ERROR\n\
             quota  zfs       2s ago  stale  exit status 1\n\
             alias  zone_xml  -       -      -\n"
        );
    }
}
