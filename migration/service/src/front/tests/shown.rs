// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is shown of a record: to an owner, while VMAPI is away, and of a migration that has ended.

use migration_core::record::State;
use pretty_assertions::assert_eq;

use super::*;

const OWNER: &str = "930896af-bf8c-48d4-885c-6573a94b1853";

fn failed() -> Record {
    let mut record =
        record(json!({"vm_uuid": VM, "owner_uuid": OWNER, "state": "failed", "phase": "switch",
        "error": "no room"}));
    record.intent.held_bytes = Some(17);
    record
}

/// A world whose VMAPI has an owner for the VM; and the door to its faults.
async fn owned() -> (World, vmapi::Store) {
    let mock = vmapi::Store::default();
    let world = world_of(store::Store::in_memory().unwrap(), mock.clone()).await;
    let vm = json!({"uuid": VM, "server_uuid": SERVER, "state": "running", "owner_uuid": OWNER});
    mock.put(vm.as_object().cloned().unwrap());
    (world, mock)
}

#[tokio::test] // M241
async fn an_owner_is_not_shown_what_is_for_operators() {
    let (world, _mock) = owned().await;
    world.keep(&failed()).await;
    for path in [format!("/migrations/{VM}?"), "/migrations?".to_owned()] {
        let get = async |owner: &str| {
            let (status, body) = world.ask("GET", &format!("{path}{owner}"), Value::Null).await;
            let one = body.get(0).cloned().unwrap_or(body);
            assert_eq!((status, &one["error"]), (200, &json!("no room")), "{one}");
            ["needs", "why", "waits_for", "held_bytes"].map(|name| one.get(name).is_some())
        };
        let operators = get("").await;
        assert!(operators[3] && (operators[0] || operators[1]), "{path} {operators:?}");
        assert_eq!(get(&format!("owner_uuid={OWNER}")).await, [false; 4], "{path}");
    }
}

#[tokio::test(start_paused = true)] // M242
async fn while_vmapi_is_away_the_record_is_shown_to_whom_it_may_be() {
    let (world, mock) = owned().await;
    world.keep(&failed()).await;
    let away = Action::Status { status: 503, body: None, retry_after: None };
    mock.faults().add(Rule::new("GET", "/vms/*", away));
    let get = async |query: &str| {
        world.ask("GET", &format!("/migrations/{VM}?{query}"), Value::Null).await.0
    };
    let stranger = format!("owner_uuid={SERVER}");
    assert_eq!(get("").await, 200);
    assert_eq!((get(&format!("owner_uuid={OWNER}")).await, get(&stranger).await), (200, 412));
    // Nothing is known of a VM without a record.
    let (status, _) = world.ask("GET", &format!("/migrations/{SERVER}"), Value::Null).await;
    assert_eq!(status, 503);
}

#[tokio::test(start_paused = true)] // M243
async fn a_watch_of_a_migration_that_ended_lately_has_its_end() {
    let (world, _mock) = owned().await;
    let watch = async || {
        let request = Request::get(format!("/migrations/{VM}/watch")).body(Body::empty());
        let answer = call(world.routes.clone(), request.unwrap()).await;
        let status = answer.status().as_u16();
        (
            status,
            String::from_utf8(to_bytes(answer.into_body(), 1 << 20).await.unwrap().to_vec())
                .unwrap(),
        )
    };
    assert_eq!(watch().await.0, 404, "never migrated");
    let at = |text: &str| Time::parse(text);
    for (phase, state, finished, want) in [
        ("abort", State::Aborted, "2026-02-28T23:45:00Z", None),
        ("abort", State::Aborted, "2026-02-28T23:55:00Z", Some("aborted")),
        ("switch", State::Successful, "2026-02-28T23:55:00Z", Some("successful")),
    ] {
        let mut ended = record(json!({"vm_uuid": VM, "owner_uuid": OWNER, "phase": phase}));
        (ended.state, ended.finished_timestamp) = (state, at(finished));
        world.keep(&ended).await;
        if state == State::Successful {
            // Its finalize has removed it.
            let kept = world.service.records.get(ended.id).await.unwrap().unwrap();
            world.service.records.remove(&kept, None, crate::records::Rest::Gone).await.unwrap();
        }
        let (status, lines) = watch().await;
        match want {
            None => assert_eq!(status, 404, "{lines}"),
            Some(state) => {
                let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
                let end = json!({"type": "end", "phase": phase, "state": state});
                assert_eq!((status, last), (200, end), "{lines}");
            }
        }
        if let Ok(Some(kept)) = world.service.records.get(ended.id).await {
            world.service.records.remove(&kept, None, crate::records::Rest::Gone).await.unwrap();
        }
    }
}
