// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `?filter=1` with `uuid`, `state`, `brand`, `fields` and `types`, each a list with commas. Without
//! `filter=1` the other keys are ignored, as shipped. Pure.

use std::collections::HashSet;

use sdc_clients::vminfod::VmObject;

use crate::store::note::Traits;

/// Fields that are always shown, so that a client knows which VM it is.
const KEYS: [&str; 2] = ["zonename", "uuid"];

/// A filter; a list that is not given passes everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    uuids: Option<HashSet<String>>,
    states: Option<HashSet<String>>,
    brands: Option<HashSet<String>>,
    fields: Option<HashSet<String>>,
    types: Option<HashSet<String>>,
}

impl Filter {
    /// Reads a query; `None` without `filter=1`.
    pub fn of(query: Option<&str>) -> Option<Self> {
        let query = query?;
        if daemon::http::query::value(Some(query), "filter") != Some("1") {
            return None;
        }
        let mut filter = Self::default();
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let list = match &*key {
                "uuid" => &mut filter.uuids,
                "state" => &mut filter.states,
                "brand" => &mut filter.brands,
                "fields" => &mut filter.fields,
                "types" => &mut filter.types,
                _ => continue,
            };
            let items = value.split(',').filter(|item| !item.is_empty()).map(str::to_owned);
            list.get_or_insert_default().extend(items);
        }
        Some(filter)
    }

    /// Returns true if the VM passes.
    pub fn admits(&self, uuid: &str, traits: &Traits) -> bool {
        let one_of = |list: &Option<HashSet<String>>, value: Option<&str>| match (list, value) {
            (None, _) => true,
            (Some(list), Some(value)) => list.contains(value),
            (Some(_), None) => false,
        };
        one_of(&self.uuids, Some(uuid))
            && one_of(&self.states, traits.state.as_deref())
            && one_of(&self.brands, traits.brand.as_deref())
    }

    /// Returns true if the field is shown.
    pub fn shows(&self, field: &str) -> bool {
        KEYS.contains(&field) || self.fields.as_ref().is_none_or(|fields| fields.contains(field))
    }

    /// Returns true if there is a list of fields.
    pub fn chooses_fields(&self) -> bool {
        self.fields.is_some()
    }

    /// Returns the object with only the fields that are shown.
    pub fn select(&self, vm: VmObject) -> VmObject {
        vm.into_iter().filter(|(key, _)| self.shows(key)).collect()
    }

    /// Returns true if this type of event passes.
    pub fn passes_type(&self, kind: &str) -> bool {
        self.types.as_ref().is_none_or(|types| types.contains(kind))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn traits(state: &str, brand: &str) -> Traits {
        Traits { state: Some(state.to_owned()), brand: Some(brand.to_owned()) }
    }

    #[test]
    fn there_is_no_filter_without_filter_1() {
        for query in [None, Some("state=running"), Some("filter"), Some("filter=true&uuid=u")] {
            assert_eq!(Filter::of(query), None, "{query:?}");
        }
        let all = Filter::of(Some("filter=1&unknown=x")).unwrap();
        assert!(
            all.admits("u", &Traits::default()) && all.shows("alias") && all.passes_type("delete")
        );
    }

    #[test]
    fn each_list_excludes_others() {
        let filter =
            Filter::of(Some("state=running%2Cstopped&filter=1&brand=lx&brand=kvm&uuid=u1,u2"))
                .unwrap();
        assert!(filter.admits("u1", &traits("running", "kvm")));
        assert!(!filter.admits("u3", &traits("running", "kvm")));
        assert!(!filter.admits("u1", &traits("failed", "kvm")));
        assert!(!filter.admits("u1", &traits("running", "joyent")));
        assert!(!filter.admits("u1", &Traits::default()));
        let none = Filter::of(Some("filter=1&state=")).unwrap();
        assert!(!none.admits("u1", &traits("running", "kvm")));
    }

    #[test]
    fn selects_fields_and_types() {
        let filter = Filter::of(Some("filter=1&fields=alias,state&types=create,delete")).unwrap();
        let vm =
            json!({"zonename": "z", "uuid": "u", "brand": "lx", "state": "running", "alias": "a"});
        let shown = filter.select(vm.as_object().unwrap().clone());
        assert_eq!(shown.keys().collect::<Vec<_>>(), ["zonename", "uuid", "state", "alias"]);
        assert!(filter.passes_type("create") && !filter.passes_type("modify"));
    }
}
