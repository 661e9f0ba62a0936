// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The property: whatever the inputs, a second reading of the rules allows each delete.

use proptest::prelude::*;
use sdc_clients::napi::NicState;

use sdc_clients::napi::Nic;
use serde_json::json;

use super::case::{CN, Case, NOW, alive, at, gone, mac, nic, view};
use crate::plan::decision::Action;
use crate::plan::verdict::Verdict;

fn any_nic() -> impl Strategy<Value = Nic> {
    (
        0u8..8,
        prop::sample::select(vec!["zone", "server", "other", "pod"]),
        prop::sample::select(vec!["gone", "v1", "v2"]),
        prop::sample::select(vec!["running", "stopped", "provisioning", "odd"]),
        prop::option::of(prop::sample::select(vec![CN, "b"])),
        prop::option::of(-10_000i64..100),
    )
        .prop_map(|(n, kind, vm, state, cn, age)| {
            let time = age.map(at);
            nic(
                n,
                json!({"belongs_to_type": kind, "belongs_to_uuid": vm, "state": state,
                "cn_uuid": cn, "created_timestamp": time, "modified_timestamp": time}),
            )
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn no_plan_deletes_what_the_rules_protect(
        nics in prop::collection::vec(any_nic(), 0..12),
        vms in prop::collection::vec((prop::sample::select(vec!["v1", "v2"]), any::<bool>(), 0u8..8), 0..3),
        first in prop::option::of(800u64..1000),
        verdict in prop::sample::select(vec![
            None, Some(Verdict::Unknown), Some(gone("failed")),
            Some(alive("running", Some(CN))), Some(alive("running", Some("b"))),
            Some(Verdict::NoAnswer(String::new())),
        ]),
        ask in any::<bool>(), complete in any::<bool>(), recent in 0usize..8,
    ) {
        let mut case = Case::new(json!({}));
        case.local = view(json!(vms.iter().map(|(vm, hidden, n)| json!({"uuid": vm,
            "state": "running", "do_not_inventory": hidden, "nics": [{"mac": mac(*n)}]}))
            .collect::<Vec<_>>()));
        case.local.listed = complete;
        (case.nics, case.first_look, case.recent) = (nics, first, recent);
        (case.verdict, case.policy.ask_vmapi) = (verdict.clone(), ask);
        let plan = case.plan();
        let deletes: Vec<_> = plan.of(Action::Delete).collect();
        for delete in &deletes {
            // Any of the records with this address (the list may repeat one) must allow it.
            let allowed = case.nics.iter().filter(|n| n.mac == delete.mac).any(|n| {
                let age = n.modified_timestamp.map(|t| NOW - t.as_second());
                let young = n.state == NicState::Provisioning;
                n.belongs_to_type.as_str() == "zone"
                    && n.cn_uuid.as_deref() == Some(CN)
                    && case.local.vms.keys().all(|vm| *vm != n.belongs_to_uuid)
                    && case.local.vms.values().all(|vm| !vm.has(n.mac))
                    && matches!(n.state.as_str(), "running" | "stopped" | "provisioning")
                    && age.is_some_and(|age| age >= if young { 7200 } else { 900 })
                    && first.is_some_and(|first| first + 60 <= 1000)
                    && complete
                    && (!ask && !young
                        || n.belongs_to_uuid == "gone" && match &verdict {
                            Some(Verdict::Gone { .. }) => true,
                            Some(Verdict::Unknown) => !young,
                            _ => false,
                        })
            });
            prop_assert!(allowed, "{delete:?}");
        }
        let confirmed = ask && matches!(verdict, Some(Verdict::Gone { .. }));
        if !deletes.is_empty() && !confirmed && !matches!(verdict, Some(Verdict::Gone { .. })) {
            prop_assert!(deletes.len() + recent <= 5 && !case.local.vms.is_empty());
        }
    }
}
