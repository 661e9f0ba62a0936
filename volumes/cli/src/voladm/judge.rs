// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What does not fit together between volumes, VMs, tickets and reservations, and what repairs it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use daemon::cli::screen::visible;
use jiff::{SignedDuration, Timestamp};
use sdc_clients::cnapi::Ticket;
use sdc_clients::volapi::{Reservation, Troubles, Volume};
use serde_json::{Map, Value, json};

use super::shell::word;
use super::zones::{Vms, ails, is_live, text};

/// Work on a volume that takes longer was left.
const HELD: SignedDuration = SignedDuration::from_mins(5);
/// A VM is made within this time, and a volume.
const OLD: SignedDuration = SignedDuration::from_hours(2);
/// The longest name of a volume.
const NAME: usize = 256;

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) volumes: Vec<Volume>,
    /// What volapi reports of those that cannot be used, or have failed.
    pub(super) troubles: Troubles,
    pub(super) reservations: Vec<Reservation>,
    /// The records of the storage VMs that are neither destroyed nor failed.
    pub(super) zones: Vms,
    /// The records of the users and storage VMs that volumes name, destroyed ones too.
    pub(super) named: Vms,
    /// The tickets of volumes.
    pub(super) tickets: Vec<Ticket>,
}

/// Something that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) kind: &'static str,
    /// The volume, VM, ticket or reservation.
    pub(super) what: String,
    /// What is wrong with it.
    pub(super) detail: String,
    /// The command that repairs it.
    pub(super) repair: String,
}

/// Returns what does not fit, kind by kind.
pub(super) fn findings(facts: &Facts, now: Timestamp) -> Vec<Finding> {
    let mut found = unusable(facts);
    found.extend(orphans(facts));
    found.extend(without_zone(facts, now));
    found.extend(double_names(&facts.volumes));
    found.extend(dead_references(facts));
    found.extend(held_tickets(&facts.tickets, now));
    found.extend(old_reservations(&facts.reservations, now));
    found
}

/// Returns true if it happened longer ago; false if the time cannot be read.
fn is_older(at: Option<&str>, than: SignedDuration, now: Timestamp) -> bool {
    at.and_then(|at| at.parse::<Timestamp>().ok()).is_some_and(|at| now.duration_since(at) > than)
}

/// A request that a person may send: `sdc-volapi PATH -X METHOD -d BODY`.
fn request(program: &str, path: &str, method: &str, body: Option<&Value>) -> String {
    let body = body.map(|body| format!(" -d {}", word(&body.to_string())));
    format!("{program} {} -X {method}{}", word(path), body.unwrap_or_default())
}

/// Volumes that cannot be used although their storage VMs are there; those whose storage VM is gone are another kind.
fn unusable(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    for volume in &facts.volumes {
        let zone =
            facts.named.get(&volume.vm_uuid).filter(|vm| text(vm, "state") != Some("destroyed"));
        let Some((why, zone)) = ails(volume, &facts.named, &facts.troubles).zip(zone) else {
            continue;
        };
        let name = word(&volume.name);
        let is_down = matches!(text(zone, "state"), Some("stopped" | "running"));
        found.push(Finding {
            kind: if volume.state == "ready" { "degraded" } else { "failed" },
            what: volume.uuid.clone(),
            detail: format!("volume {name} cannot be used: {}", visible(&why)),
            repair: if is_down { restarts(volume) } else { deletes(volume) },
        });
    }
    found
}

fn restarts(volume: &Volume) -> String {
    let need = daemon::needs::find("volume-stopped");
    need.map(|need| need.command_for(&[("VOLUME", &word(&volume.uuid))])).unwrap_or_default()
}

fn deletes(volume: &Volume) -> String {
    let (owner, uuid) = (word(&volume.owner_uuid), word(&volume.uuid));
    format!("sdc-voladm delete-volume-zone --owner {owner} {uuid}")
}

/// Storage VMs that no volume names. Their mark is one that only operators and services can set.
fn orphans(facts: &Facts) -> Vec<Finding> {
    let known: BTreeSet<&str> = facts.volumes.iter().map(|it| it.vm_uuid.as_str()).collect();
    let is_storage = |vm: &Map<String, Value>| {
        let metadata = vm.get("internal_metadata");
        metadata.is_some_and(|it| it["sdc:system_role"] == "nfsvolumestorage")
    };
    let left = facts
        .zones
        .iter()
        .filter(|(uuid, vm)| is_storage(vm) && is_live(vm) && !known.contains(uuid.as_str()));
    left.map(|(uuid, vm)| {
        let alias = text(vm, "alias").map(word).unwrap_or_default();
        Finding {
            kind: "orphan",
            what: uuid.clone(),
            detail: format!(
                "storage VM {alias} of no volume; check first whether its data matters"
            ),
            repair: request("sdc-vmapi", &format!("/vms/{uuid}"), "DELETE", None),
        }
    })
    .collect()
}

/// Volumes whose storage VM is gone, and that nothing is done about any more.
fn without_zone(facts: &Facts, now: Timestamp) -> Vec<Finding> {
    let is_gone = |volume: &&Volume| match facts.named.get(&volume.vm_uuid) {
        Some(vm) => text(vm, "state") == Some("destroyed"),
        None => true,
    };
    let is_left = |volume: &&Volume| {
        volume.state != "creating" || is_older(volume.create_timestamp.as_deref(), OLD, now)
    };
    let gone = facts.volumes.iter().filter(is_gone).filter(is_left);
    let why = |volume| match ails(volume, &facts.named, &facts.troubles) {
        Some(why) => visible(&why),
        None => format!("its storage VM {} is gone", word(&volume.vm_uuid)),
    };
    gone.map(|volume| Finding {
        kind: "no storage VM",
        what: volume.uuid.clone(),
        detail: format!("volume {}, {}: {}", word(&volume.name), word(&volume.state), why(volume)),
        repair: deletes(volume),
    })
    .collect()
}

/// Creating and ready volumes of one owner with one name: all but the oldest get another one.
fn double_names(volumes: &[Volume]) -> Vec<Finding> {
    let mut names: BTreeMap<(&str, &str), Vec<&Volume>> = BTreeMap::new();
    for volume in volumes.iter().filter(|it| matches!(&*it.state, "creating" | "ready")) {
        names.entry((&volume.owner_uuid, &volume.name)).or_default().push(volume);
    }
    let mut found = Vec::new();
    for ((owner, name), mut same) in names.into_iter().filter(|(_, same)| same.len() > 1) {
        same.sort_by(|a, b| (&a.create_timestamp, &a.uuid).cmp(&(&b.create_timestamp, &b.uuid)));
        for volume in &same[1..] {
            let short: String = volume.uuid.chars().take(8).collect();
            let kept: String = name.chars().take(NAME - 9).collect();
            let body = json!({ "owner_uuid": owner, "name": format!("{kept}-{short}") });
            let path = format!("/volumes/{}", volume.uuid);
            found.push(Finding {
                kind: "double name",
                what: volume.uuid.clone(),
                detail: format!(
                    "{} of the same owner has the name {} too",
                    same[0].uuid,
                    word(name)
                ),
                repair: request("sdc-volapi", &path, "POST", Some(&body)),
            });
        }
    }
    found
}

/// Users that are no more. One that has a reservation may only not be there yet.
fn dead_references(facts: &Facts) -> Vec<Finding> {
    let coming: BTreeSet<&str> = facts.reservations.iter().map(|it| it.vm_uuid.as_str()).collect();
    let mut found = Vec::new();
    for volume in &facts.volumes {
        for user in volume.refs.iter().filter(|user| !coming.contains(user.as_str())) {
            let state = match facts.named.get(user) {
                Some(vm) if is_live(vm) => continue,
                Some(vm) => text(vm, "state").unwrap_or_default(),
                None => "not known to VMAPI",
            };
            let body = json!({ "owner_uuid": volume.owner_uuid, "vm_uuid": user });
            let path = format!("/volumes/{}/removereference", volume.uuid);
            found.push(Finding {
                kind: "dead reference",
                what: user.clone(),
                detail: format!("uses volume {} and is {}", word(&volume.name), word(state)),
                repair: request("sdc-volapi", &path, "POST", Some(&body)),
            });
        }
    }
    found
}

/// Tickets that hold up the work on a name.
fn held_tickets(tickets: &[Ticket], now: Timestamp) -> Vec<Finding> {
    let made = |ticket: &Ticket| ticket.other.get("created_at")?.as_str().map(str::to_owned);
    let held = tickets.iter().filter(|it| it.scope == "nfs_volume" && it.is_active());
    let held = held.filter(|ticket| is_older(made(ticket).as_deref(), HELD, now));
    held.map(|ticket| Finding {
        kind: "held ticket",
        what: ticket.uuid.clone(),
        detail: format!(
            "{} is held since {}: creating, renaming and deleting it wait",
            word(&ticket.id),
            made(ticket).as_deref().map(word).unwrap_or_default()
        ),
        repair: request("sdc-cnapi", &format!("/tickets/{}/release", ticket.uuid), "PUT", None),
    })
    .collect()
}

/// Reservations of VMs that should be there by now.
fn old_reservations(reservations: &[Reservation], now: Timestamp) -> Vec<Finding> {
    let old = reservations.iter().filter(|it| is_older(Some(&it.create_timestamp), OLD, now));
    old.map(|it| {
        let path = format!("/volumereservations/{}?owner_uuid={}", it.uuid, it.owner_uuid);
        Finding {
            kind: "old reservation",
            what: it.uuid.clone(),
            detail: format!(
                "of volume {} for VM {}, since {}",
                word(&it.volume_name),
                word(&it.vm_uuid),
                word(&it.create_timestamp)
            ),
            repair: request("sdc-volapi", &path, "DELETE", None),
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use sdc_clients::volapi::{Degraded, Failed};

    use super::*;

    fn volume(uuid: &str, name: &str, state: &str, more: Value) -> Volume {
        let mut all = json!({"uuid": uuid, "name": name, "owner_uuid": "o", "size": 10240,
            "state": state, "vm_uuid": format!("z-{uuid}"), "create_timestamp": "2026-01-01T00:00:00.000Z"});
        all.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        serde_json::from_value(all).unwrap()
    }

    fn vms(all: &[(&str, Value)]) -> Vms {
        all.iter()
            .map(|(uuid, vm)| ((*uuid).to_owned(), vm.as_object().cloned().unwrap()))
            .collect()
    }

    fn reservation(vm: &str, at: &str) -> Reservation {
        serde_json::from_value(json!({"uuid": "r", "owner_uuid": "o", "volume_name": "data",
            "vm_uuid": vm, "job_uuid": "j", "create_timestamp": at}))
        .unwrap()
    }

    fn ticket(status: &str, at: &str) -> Ticket {
        serde_json::from_value(json!({"uuid": "t", "server_uuid": "default", "scope": "nfs_volume",
            "id": "o-data", "status": status, "created_at": at}))
        .unwrap()
    }

    const NOW: &str = "2026-01-01T03:00:00Z";

    fn found(facts: &Facts) -> Vec<(&'static str, String, String)> {
        let all = findings(facts, NOW.parse().unwrap());
        all.into_iter().map(|it| (it.kind, it.what, it.repair)).collect()
    }

    fn running() -> Value {
        json!({"state": "running"})
    }

    #[test] // V84
    fn each_kind_is_found_with_what_repairs_it() {
        let storage = json!({"state": "running", "alias": "nfs-shared-volume-x",
            "internal_metadata": {"sdc:system_role": "nfsvolumestorage"}});
        let mut younger = volume("v2", "data", "ready", json!({}));
        younger.create_timestamp = Some("2026-01-01T01:00:00.000Z".to_owned());
        let facts = Facts {
            volumes: vec![
                volume("v1", "data", "ready", json!({"refs": ["u1", "u2", "u3", "u4"]})),
                younger,
                volume("v3", "data", "failed", json!({})),
            ],
            reservations: vec![reservation("u3", "2026-01-01T00:59:59.000Z")],
            zones: vms(&[
                ("z-v1", storage.clone()),
                ("z-none", storage.clone()),
                ("tenant", running()),
            ]),
            named: vms(&[
                ("z-v1", running()),
                ("z-v2", running()),
                ("z-v3", json!({"state": "destroyed"})),
                ("u1", running()),
                ("u2", json!({"state": "destroyed"})),
            ]),
            tickets: vec![ticket("active", "2026-01-01T02:54:59.000Z")],
            troubles: Troubles {
                degraded: vec![Degraded {
                    vm_uuid: "z-v2".to_owned(),
                    storage_vm: "does not serve".to_owned(),
                    ..Degraded::default()
                }],
                failed: None,
            },
        };
        let text = |kind, what: &str, repair: &str| (kind, what.to_owned(), repair.to_owned());
        let reference = |user: &str| {
            format!(
                "sdc-volapi /volumes/v1/removereference -X POST -d '{{\"owner_uuid\":\"o\",\"vm_uuid\":\"{user}\"}}'"
            )
        };
        assert_eq!(
            found(&facts),
            [
                text("degraded", "v2", "sdc-voladm restart-volume-zone --force v2"),
                text("orphan", "z-none", "sdc-vmapi /vms/z-none -X DELETE"),
                text("no storage VM", "v3", "sdc-voladm delete-volume-zone --owner o v3"),
                text(
                    "double name",
                    "v2",
                    "sdc-volapi /volumes/v2 -X POST -d '{\"owner_uuid\":\"o\",\"name\":\"data-v2\"}'"
                ),
                ("dead reference", "u2".to_owned(), reference("u2")),
                ("dead reference", "u4".to_owned(), reference("u4")),
                text("held ticket", "t", "sdc-cnapi /tickets/t/release -X PUT"),
                text(
                    "old reservation",
                    "r",
                    "sdc-volapi '/volumereservations/r?owner_uuid=o' -X DELETE"
                ),
            ]
        );
    }

    #[test] // V142
    fn a_volume_that_failed_is_found_with_the_reason_wherever_that_is_known() {
        let said = "its storage VM was destroyed";
        let mut told = volume("v1", "data", "failed", json!({}));
        told.failure = Some(said.to_owned());
        let failed =
            Failed { volume: "v2".to_owned(), why: Some(said.to_owned()), ..Failed::default() };
        let facts = Facts {
            volumes: vec![
                told,
                volume("v2", "logs", "failed", json!({})),
                volume("v3", "x", "failed", json!({})),
            ],
            troubles: Troubles { degraded: Vec::new(), failed: Some(vec![failed]) },
            named: vms(&[
                ("z-v2", json!({"state": "stopped"})),
                ("z-v1", json!({"state": "destroyed"})),
            ]),
            ..Facts::default()
        };
        let found = findings(&facts, NOW.parse().unwrap());
        let told: Vec<_> = found.iter().map(|it| (it.kind, &*it.detail)).collect();
        assert_eq!(
            told,
            [
                (
                    "failed",
                    "volume logs cannot be used: its storage VM was destroyed; its storage VM z-v2 is stopped"
                ),
                ("no storage VM", "volume data, failed: its storage VM was destroyed"),
                ("no storage VM", "volume x, failed: its storage VM z-v3 is gone"),
            ]
        );
    }

    #[test] // V84
    fn what_is_under_way_is_no_finding() {
        let mut made = volume("v1", "data", "creating", json!({"refs": ["u1", "u2"]}));
        made.create_timestamp = Some("2026-01-01T02:30:00.000Z".to_owned());
        let facts = Facts {
            volumes: vec![made, volume("v2", "data", "deleting", json!({}))],
            reservations: vec![reservation("u1", "2026-01-01T01:00:01.000Z")],
            // A record without a state is one in the middle of a migration.
            named: vms(&[("u2", json!({})), ("z-v2", running())]),
            tickets: vec![
                ticket("active", "2026-01-01T02:55:01.000Z"),
                ticket("queued", "2026-01-01T00:00:00.000Z"),
                ticket("active", "nonsense"),
            ],
            ..Facts::default()
        };
        assert_eq!(found(&facts), []);
    }
}
