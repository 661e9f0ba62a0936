// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Every numbered statement of the sheet: R1–R20 of RFD 58, races 1–33, defects D1–D11 of the
//! prototype. What the plan can show is a row that is worked out here; what only the loops can
//! show names the test that does, and that test must exist.

use sdc_clients::napi::NicState;

use super::*;
use crate::holds::Hold;
use crate::plan::reap::{Basis, Facts, Reading, judge};

/// How a row is held.
enum Row {
    /// The plan's word for the case, and the word it must be.
    Plan(&'static str, String),
    /// A test of the loops.
    Test(&'static str),
}

fn with(over: serde_json::Value, change: impl FnOnce(&mut Case)) -> String {
    let mut case = Case::new(over);
    change(&mut case);
    case.says()
}

/// VM `gone` is here after all.
fn here(state: &str, hidden: bool) -> LocalView {
    view(json!([{"uuid": "gone", "state": state, "do_not_inventory": hidden, "owner_uuid": "o",
        "nics": []}]))
}

/// VM `vm` is here with the address, and the record belongs to it.
fn own(over: serde_json::Value, state: &str, verdict: Option<Verdict>) -> String {
    let mut case = Case::new(over);
    case.nics[0].belongs_to_uuid = "vm".into();
    case.local = view(json!([{"uuid": "vm", "state": state, "owner_uuid": "o",
        "nics": [{"mac": mac(1)}]}]));
    case.verdict = None;
    let says = case.plan_with("vm", verdict);
    says.decisions.iter().find(|d| d.mac == mac(1)).unwrap().action.name().to_owned()
}

/// The predicate's word on a fresh copy.
fn fresh(over: serde_json::Value, basis: Basis, etag: Option<&str>) -> String {
    let local = view(json!([{"uuid": "other", "state": "running", "nics": []}]));
    let policy = policy();
    let facts = Facts {
        local: &local,
        now: Some(Timestamp::from_second(NOW).unwrap()),
        verdict: Some(&Verdict::Gone("destroyed".into())),
        hold: None,
        basis,
        reading: Reading::Fresh(etag),
        policy: &policy,
    };
    format!("{:?}", judge(&nic(1, over), &facts).ruling).to_lowercase()
}

fn own_nic(over: serde_json::Value) -> String {
    let mut case = Case::new(over);
    case.nics[0].mac = mac(200);
    case.plan().decisions[0].action.name().to_owned()
}

fn rows() -> Vec<(String, Row)> {
    use Row::{Plan, Test};
    let booter = json!({"belongs_to_type": "other", "belongs_to_uuid": "admin",
        "state": "provisioning", "cn_uuid": null});
    let provisioning = json!({"state": "provisioning"});
    let young = json!({"state": "provisioning", "created_timestamp": at(-60),
        "modified_timestamp": at(-60)});
    let elsewhere = || Some(alive("running", Some("elsewhere")));
    let looked = || {
        let mut case = Case::new(json!({}));
        case.nics.clear();
        case.local = view(json!([{"uuid": "vm", "state": "running", "nics": [{"mac": mac(1)}]}]));
        case.says()
    };
    let rfd = vec![
        Test("c01_a_thousand_first_lists_are_spread_evenly_over_2_to_10_minutes"),
        Test("the_list_is_read_again_every_day_or_so_and_once_only_when_told_so"),
        Test("c03_search_is_tried_first_and_never_means_hours_while_events_are_still_served"),
        Test("c04_probe_uses_nics_where_it_filters_and_never_takes_more_than_one_record_elsewhere"),
        Test("c05_an_upgrade_during_the_back_off_leads_to_a_reap_without_a_restart"),
        Plan("delete", with(json!({}), |_| ())),
        Plan("keep", with(json!({}), |c| c.local = here("running", false))),
        Plan("look", looked()),
        Test("c08_backfill_is_written_before_the_first_delete_with_nothing_else_in_it"),
        Plan("write", own(provisioning.clone(), "running", None)),
        Plan("write", own_nic(booter.clone())),
        Plan("delete", fresh(json!({"modified_timestamp": at(-1)}), Basis::Witnessed, Some("E"))),
        Test("c22_changes_without_events_are_found_within_one_comparison"),
        Test("c03_search_is_tried_first_and_never_means_hours_while_events_are_still_served"),
        Plan(
            "defer",
            with(json!({}), |c| {
                let since = Timestamp::from_second(NOW).unwrap();
                c.holds.holds.push(Hold { vm: None, reason: "move".into(), since, until: None });
            }),
        ),
        Plan("keep", with(json!({}), |c| c.local = here("running", true))),
        Test("c17_a_delete_that_finds_nothing_is_a_success"),
        Test("c27_the_node_and_vmapi_are_only_ever_read"),
        Test("c04_probe_uses_nics_where_it_filters_and_never_takes_more_than_one_record_elsewhere"),
        Test("the_shipped_file_is_taken_as_it_is"),
    ];
    let races = vec![
        Plan("keep", with(json!({}), |c| c.local = here("stopped", true))),
        Plan(
            "keep",
            with(json!({}), |c| {
                (c.local, c.verdict) = (here("running", true), Some(alive("running", Some(CN))));
            }),
        ),
        Plan("keep", with(json!({}), |c| c.verdict = elsewhere())),
        Plan("keep", with(json!({"state": "stopped"}), |c| c.verdict = elsewhere())),
        Plan(
            "defer",
            with(json!({}), |c| {
                c.local.lately_hidden.insert("gone".into());
            }),
        ),
        Plan("write", own(json!({"cn_uuid": "b"}), "running", Some(alive("running", Some(CN))))),
        Plan("ask-vmapi", own(json!({"cn_uuid": "b"}), "running", None)),
        Plan("keep", with(json!({"cn_uuid": "b"}), |_| ())),
        Plan("defer", with(young.clone(), |c| c.verdict = Some(alive("provisioning", Some(CN))))),
        Plan(
            "delete",
            with(provisioning.clone(), |c| {
                c.verdict = Some(Verdict::Gone("failed".into()));
            }),
        ),
        Plan("keep", with(json!({}), |c| c.local = here("running", false))),
        Test("c27_the_node_and_vmapi_are_only_ever_read"),
        Test("c17_a_delete_that_finds_nothing_is_a_success"),
        Test("c15_every_delete_carries_if_match_and_without_an_etag_there_is_none"),
        Test("c23_a_vm_deleted_and_created_again_within_ten_seconds_keeps_its_nic"),
        Test("a_vm_that_comes_back_between_the_last_look_and_the_delete_keeps_its_nic"),
        Plan("defer", with(json!({}), |c| c.local.complete = false)),
        Plan("defer", with(json!({}), |c| c.first_look = None)),
        Test("c07_three_pages_in_no_order_and_pages_that_are_halved_to_a_hundred"),
        Test("c26_two_faults_in_a_row_anywhere_and_an_outage_in_the_middle"),
        Test("c18_an_answer_lost_after_the_commit_is_read_never_resent"),
        Test("c01_a_thousand_first_lists_are_spread_evenly_over_2_to_10_minutes"),
        Test("c30_beside_an_old_agent_that_writes_whole_records_no_live_vm_loses_a_nic"),
        Test("c30_beside_an_old_agent_that_writes_whole_records_no_live_vm_loses_a_nic"),
        Plan("keep", fresh(json!({}), Basis::Witnessed, None)),
        Test("c19_one_record_of_another_node_voids_the_whole_answer"),
        Test("c16_a_412_is_read_and_decided_again_five_rounds_at_most_with_growing_pauses"),
        Test("c24_a_wrong_identity_refuses_to_write_and_says_so"),
        Test("a_second_copy_does_not_start"),
        Plan("write", own(json!({}), "stopped", None)),
        Test("a_record_that_goes_while_it_is_written_is_gone"),
        Plan("keep", with(json!({}), |c| c.local = here("failed", false))),
        Plan("keep", own(json!({}), "running", None)),
    ];
    let defects = vec![
        Plan("look", looked()),
        Test("c08_backfill_is_written_before_the_first_delete_with_nothing_else_in_it"),
        Plan("keep", with(json!({}), |c| c.local = here("running", true))),
        Plan("keep", fresh(json!({}), Basis::pass(Some(Duration::from_secs(1))), Some(""))),
        Plan("defer", with(young, |_| ())),
        Test("c07_three_pages_in_no_order_and_pages_that_are_halved_to_a_hundred"),
        Test("c28_errors_without_a_body_crash_nothing"),
        Test("c16_a_412_is_read_and_decided_again_five_rounds_at_most_with_growing_pauses"),
        Plan(
            "defer",
            with(json!({}), |c| {
                (c.local, c.verdict) = (view(json!([])), Some(Verdict::Unknown));
            }),
        ),
        Plan("delete", with(json!({"state": NicState::Stopped.as_str()}), |_| ())),
        Test("c29_a_lost_vminfod_is_reconnected_and_all_is_compared"),
    ];
    let number = |prefix: &'static str, rows: Vec<Row>| {
        rows.into_iter().enumerate().map(move |(n, row)| (format!("{prefix}{}", n + 1), row))
    };
    number("R", rfd).chain(number("race ", races)).chain(number("D", defects)).collect()
}

/// The sources of this crate's tests.
fn sources() -> String {
    let mut folders = vec![std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR"))];
    let mut all = String::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                all += &std::fs::read_to_string(path).unwrap();
            }
        }
    }
    all
}

#[test]
fn every_requirement_race_and_defect_has_a_row_that_holds() {
    let (rows, sources) = (rows(), sources());
    assert_eq!(rows.len(), 20 + 33 + 11);
    for (name, row) in rows {
        match row {
            Row::Plan(want, found) => assert_eq!(found, want, "{name}"),
            Row::Test(test) => {
                assert!(
                    sources.contains(&format!("fn {test}(")),
                    "{name}: there is no test {test}"
                );
            }
        }
    }
}
