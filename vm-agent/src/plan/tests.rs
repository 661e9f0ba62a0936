// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The rules over all combinations of what the two sides can say.

use std::time::Duration;

use proptest::prelude::*;
use sdc_clients::vminfod::{Incomplete, View};
use serde_json::{Map, Value, json};

use super::*;

const CN: &str = "a829c448-085b-4138-adbc-583ac96881c3";
const OTHER: &str = "b829c448-085b-4138-adbc-583ac96881c3";
const OWNER: &str = "930896af-bf8c-48d4-885c-6573a94b1853";
const VM: &str = "40000000-0000-4000-8000-000000000001";
const NOW: &str = "2026-06-01T00:00:00Z";

/// A reading of a VM that is not new, begun after its record was read.
const LATE: Reading = Reading { is_new: false, is_after: true, lasts_in: Duration::ZERO };

fn judge() -> Judge<'static> {
    let provisioning_age = Duration::from_secs(7200);
    Judge { cn_uuid: CN, provisioning_age, now: NOW.parse().unwrap() }
}

fn whole() -> Map<String, Value> {
    json!({"uuid": VM, "zonename": VM, "brand": "lx", "state": "running", "zone_state": "running",
        "zonepath": "/zones/x", "owner_uuid": OWNER, "nics": [{"mac": "f2:00:00:00:00:01"}],
        "customer_metadata": {"a": "b"}, "internal_metadata": {}, "tags": {}, "snapshots": [],
        "server_uuid": CN, "last_modified": "2026-01-02T00:00:00.000Z", "alias": "web", "quota": 10})
    .as_object()
    .unwrap()
    .clone()
}

/// One of these values for a key, or none.
fn one_of(
    key: &'static str,
    values: &[Value],
) -> impl Strategy<Value = (&'static str, Value)> + use<> {
    let values: Vec<Value> = [&[json!("ABSENT")], values].concat();
    prop::sample::select(values).prop_map(move |value| (key, value))
}

/// An object with some of its fields changed or missing.
fn changed() -> impl Strategy<Value = Map<String, Value>> {
    let server = one_of("server_uuid", &[json!(CN), json!(OTHER), json!(""), Value::Null]);
    let states =
        ["running", "stopped", "destroyed", "failed", "provisioning", "unknown", "rebooting"];
    let states: Vec<Value> = states.iter().map(|state| json!(state)).collect();
    let made = ["2026-05-31T23:00:00Z", "2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z", "soon"];
    let made: Vec<Value> = made.iter().map(|at| json!(at)).collect();
    let modified =
        ["2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z", "2026-01-03T00:00:00.000Z"];
    let modified: Vec<Value> = modified.iter().map(|at| json!(at)).collect();
    let fields = (
        server,
        one_of("state", &states),
        one_of("zone_state", &[json!("running"), json!("installed"), json!("ready")]),
        one_of("owner_uuid", &[json!(OWNER), json!("nobody")]),
        one_of("create_timestamp", &made),
        one_of("last_modified", &modified),
        one_of("do_not_inventory", &[json!(true), json!("true"), json!(false)]),
        one_of("alias", &[json!("web"), json!("db"), json!(""), Value::Null]),
        one_of("nics", &[json!([]), json!("x"), json!([{"mac": "f2:00:00:00:00:01"}])]),
    );
    (fields, any::<u16>()).prop_map(|((a, b, c, d, e, f, g, h, i), which)| {
        let mut object = whole();
        for (bit, (key, value)) in [a, b, c, d, e, f, g, h, i].into_iter().enumerate() {
            if which & (1 << bit) == 0 {
                continue;
            }
            match value == "ABSENT" {
                true => drop(object.remove(key)),
                false => drop(object.insert(key.to_owned(), value)),
            }
        }
        object
    })
}

fn text<'a>(object: &'a Map<String, Value>, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test] // H2, H5, H7, A12, W1, W6, W23
    fn what_is_told_is_whole_of_this_node_shown_and_not_older(
        record in prop::option::of(changed()), object in changed(), is_new in any::<bool>(),
        is_after in any::<bool>(), lasts in any::<bool>()
    ) {
        let record = record.map(Record);
        let lasts_in = if lasts { Duration::ZERO } else { LASTS };
        let reading = Reading { is_new, is_after, lasts_in };
        let decision = judge().present(record.as_ref(), &object, reading);
        prop_assert!(!matches!(decision, Decision::Destroyed(_)));
        let Decision::Put(_, put) = decision else { return Ok(()) };
        prop_assert_eq!(&put, &object);
        prop_assert!(lasts || passing(&put).is_none());
        prop_assert_eq!(text(&put, "server_uuid"), CN);
        prop_assert_eq!(text(&put, "owner_uuid"), OWNER);
        prop_assert!(put["nics"].is_array() && !text(&put, "state").is_empty());
        prop_assert!(![Some(&json!(true)), Some(&json!("true"))].contains(&put.get("do_not_inventory")));
        let Some(Record(record)) = record else { return Ok(()) };
        let is_alive = !["destroyed", "failed"].contains(&text(&record, "state"));
        if text(&record, "server_uuid") == OTHER && is_alive {
            prop_assert!(is_new || text(&put, "zone_state") == "running");
        }
        let is_bare = text(&record, "state").is_empty() && text(&record, "owner_uuid").is_empty();
        let is_timed = !is_after && !text(&put, "last_modified").is_empty();
        if text(&record, "server_uuid") == CN && !is_bare && is_timed {
            prop_assert!(text(&put, "last_modified") >= text(&record, "last_modified"));
        }
    }

    #[test] // H1, H3, A14
    fn only_a_living_record_of_this_node_is_told_to_be_destroyed(
        record in changed(), last in prop::option::of(changed())
    ) {
        let (state, server) = (text(&record, "state").to_owned(), text(&record, "server_uuid").to_owned());
        let made = text(&record, "create_timestamp").to_owned();
        let newest = text(&record, "last_modified").to_owned();
        let decision = judge().absent(Some(&Record(record)), last.as_ref());
        let Decision::Destroyed(put) = decision else { return Ok(()) };
        prop_assert_eq!((text(&put, "state"), text(&put, "zone_state")), ("destroyed", "destroyed"));
        prop_assert_eq!((text(&put, "uuid"), text(&put, "server_uuid")), (VM, CN));
        prop_assert_eq!(server, CN);
        prop_assert!(!["destroyed", "failed"].contains(&&*state));
        prop_assert!(state != "provisioning" || made == "2020-01-01T00:00:00Z");
        prop_assert!(text(&put, "last_modified") >= &*newest);
    }

    #[test] // A2, A11
    fn what_was_told_does_not_differ(object in changed()) {
        let Decision::Put(_, put) = judge().present(None, &object, LATE) else { return Ok(()) };
        // As VMAPI shows it: no empty fields, its own defaults.
        let mut record = put.clone();
        record.retain(|_, value| !value.is_null() && *value != "");
        for key in ["cpu_cap", "destroyed", "ram"] {
            record.insert(key.to_owned(), Value::Null);
        }
        record.remove("zonename");
        let again = judge().present(Some(&Record(record)), &object, LATE);
        prop_assert_eq!(again, Decision::Nothing(Reason::Same));
    }

    #[test] // A1, A4, H7
    fn a_start_puts_no_vm_in_two_places(
        records in prop::collection::vec((0..6_u8, changed()), 0..6),
        objects in prop::collection::vec((0..6_u8, changed()), 0..6),
        unread in prop::collection::btree_set(0..6_u8, 0..3)
    ) {
        let name = |n: u8| format!("40000000-0000-4000-8000-00000000000{n}");
        let named = |(n, mut object): (u8, Map<String, Value>)| {
            object.insert("uuid".to_owned(), json!(name(n)));
            object.insert("zonename".to_owned(), json!(name(n)));
            object
        };
        let records: Vec<_> = records.into_iter().map(named).collect();
        let vms: Vec<_> = objects.into_iter().map(named).collect();
        let incomplete = Incomplete::of_zones(unread.iter().map(|n| name(*n)));
        let view = View { vms: vms.clone(), incomplete };
        let start = Start::of(judge(), records.clone(), &view);
        for n in 0..6 {
            let vm = name(n);
            let first = start.first.iter().any(|(it, _)| *it == vm);
            let places = [first, start.batch.contains_key(&vm), start.settled.contains(&vm)];
            let is_here = vms.iter().any(|object| text(object, "uuid") == vm);
            let is_in = places.iter().filter(|is| **is).count();
            prop_assert!(!start.gone.contains(&vm) || (is_in == 0 && !is_here && !unread.contains(&n)));
            prop_assert!(!unread.contains(&n) || is_in == 0);
            prop_assert!(is_here || is_in == 0);
        }
    }
}

#[test] // H1
fn a_record_without_a_good_time_is_young() {
    for (made, is_young) in [
        (json!("2026-05-31T23:00:01Z"), true),
        (json!("2026-05-31T22:00:00Z"), false),
        (json!("2030-01-01T00:00:00Z"), true),
        (json!("soon"), true),
        (Value::Null, true),
    ] {
        let mut record = whole();
        record.insert("state".to_owned(), json!("provisioning"));
        record.insert("create_timestamp".to_owned(), made.clone());
        let decision = judge().absent(Some(&Record(record)), None);
        assert_eq!(matches!(decision, Decision::Wait(Reason::Provisioning(_))), is_young, "{made}");
    }
}
