// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Keys whose values config-agent takes from SAPI's metadata. A name that SAPI does not have becomes an empty text there,
//! and the file is written all the same: the program is not configured yet.

use serde_json::Value;

/// The keys of the templates, and the metadata that each is made of.
pub(super) const FROM_SAPI: [(&str, &str); 18] = [
    ("admin_uuid", "ufds_admin_uuid"),
    ("cnapi.url", "cnapi_domain"),
    ("cnapi_url", "cnapi_domain"),
    ("imgapi.url", "imgapi_domain"),
    ("imgapi_url", "imgapi_domain"),
    ("names", "vmapi_domain"),
    ("napi.url", "napi_domain"),
    ("napi_url", "napi_domain"),
    ("nats.servers", "fleet_servers"),
    ("papi.url", "papi_domain"),
    ("papi_url", "papi_domain"),
    ("service_url", "migration_service_url"),
    ("upstream_vmapi", "migration_upstream_vmapi"),
    ("vmapi.url", "vmapi_domain"),
    ("vmapi_url", "vmapi_domain"),
    ("workflow.url", "workflow_domain"),
    ("cn_uuid", "auto.SERVER_UUID"),
    ("server_uuid", "auto.SERVER_UUID"),
];

/// Returns true for what a template has at this key where the metadata is missing.
pub(super) fn is_empty(key: &str, value: &Value) -> bool {
    match value {
        Value::String(text) => ["", "http://", "https://"].contains(&text.as_str()),
        // The one name that is a list of texts itself.
        Value::Array(values) if values.is_empty() => key == "nats.servers",
        Value::Array(values) => values.iter().all(|it| is_empty(key, it)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::super::{ConfigError, Fields};
    use super::*;

    /// The keys of a template, dotted, with what stands in each.
    fn keys(value: &Value, prefix: &str, found: &mut Vec<(String, String)>) {
        let Value::Object(map) = value else {
            found.push((prefix.trim_end_matches('.').to_owned(), value.to_string()));
            return;
        };
        map.iter().for_each(|(key, value)| keys(value, &format!("{prefix}{key}."), found));
    }

    #[test]
    fn each_key_that_a_template_takes_from_sapi_is_in_the_table_with_its_name() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/sapi");
        let mut seen = BTreeSet::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let template = std::fs::read_to_string(entry.unwrap().path().join("template")).unwrap();
            // A list of texts is one name in the template of fleet-agent.
            let template = template.replace("[{{{fleet_servers}}}]", "[\"{{{fleet_servers}}}\"]");
            let mut found = Vec::new();
            keys(&serde_json::from_str(&template).unwrap(), "", &mut found);
            for (key, value) in found {
                let Some((_, name)) = value.split_once("{{{") else { continue };
                let name = name.split_once("}}}").unwrap().0;
                // Of the node itself, and what is empty until it is marked.
                if name.starts_with("auto.") || name == "HUB_DATA_IN_USE" {
                    continue;
                }
                assert!(FROM_SAPI.contains(&(&key, name)), "{key} is made of {name}");
                seen.insert(key);
            }
        }
        let unused = FROM_SAPI.iter().filter(|(_, name)| !name.starts_with("auto."));
        let unused: Vec<_> = unused.filter(|(key, _)| !seen.contains(*key)).collect();
        assert_eq!(unused, Vec::<&(&str, &str)>::new());
    }

    #[test]
    fn what_sapi_did_not_have_is_named_and_is_no_fault() {
        for (key, text) in [
            ("napi.url", r#"{"napi": {"url": "http://"}}"#),
            ("service_url", r#"{"service_url": ""}"#),
            ("nats.servers", r#"{"nats": {"servers": []}}"#),
            ("names", r#"{"names": [""]}"#),
        ] {
            let mut fields = Fields::from_json(text).unwrap();
            fields.get(key);
            fields.fault(key, "not a URL");
            let error = fields.finish().unwrap_err();
            assert!(matches!(error, ConfigError::Unset { .. }), "{error}");
            let name = FROM_SAPI.iter().find(|(known, _)| *known == key).unwrap().1;
            let said = error.to_string();
            assert!(said.contains("not configured yet") && said.contains(name), "{said}");
        }
        // A key that the program does not read, and one with a value.
        let mut fields =
            Fields::from_json(r#"{"service_url": "", "napi_url": "http://x"}"#).unwrap();
        fields.get("napi_url");
        assert_eq!(fields.finish().unwrap(), ["service_url"]);
    }
}
