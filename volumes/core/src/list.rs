// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which volumes a list has.

use serde_json::Value;

use super::checks::{self, Causes, Params, optional, text, uuids};
use super::predicate::{Fields, Predicate};
use super::refused::Refused;
use super::volume::{State, Volume};

/// How the names of parameters begin that search for a tag: `tag.KEY=VALUE`.
pub const TAG: &str = "tag.";

/// The filters of `GET /volumes`.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// `*` may stand at either end.
    pub name: Option<String>,
    pub owner_uuid: Option<String>,
    /// A VM that uses it.
    pub refs: Option<String>,
    /// In MiB.
    pub size: Option<f64>,
    pub state: Option<State>,
    pub kind: Option<String>,
    pub predicate: Option<Predicate>,
    /// Its storage VM.
    pub vm_uuid: Option<String>,
    pub billing_id: Option<String>,
    /// Tags that it must have, with their values.
    pub tags: Vec<(String, String)>,
}

/// Checks the parameters of `GET /volumes`; with `rfd26` also those that the deployed service does not know.
pub fn read(params: &Params, rfd26: bool) -> Result<Filter, Refused> {
    const DEPLOYED: [&str; 7] =
        ["name", "owner_uuid", "predicate", "refs", "size", "state", "type"];
    const ADDED: [&str; 2] = ["vm_uuid", "billing_id"];
    let mut causes = Causes::default();
    let tags = params
        .iter()
        .filter(|(name, _)| rfd26 && name.strip_prefix(TAG).is_some_and(|key| !key.is_empty()));
    let tags: Vec<(&str, &Value)> = tags.map(|(name, value)| (name.as_str(), value)).collect();
    let added = if rfd26 { &ADDED[..] } else { &[] };
    let optionals: Vec<&str> =
        DEPLOYED.iter().chain(added).copied().chain(tags.iter().map(|(name, _)| *name)).collect();
    causes.names(params, &[], &optionals);
    let mut predicate = None;
    if let Some(value) = params.get("predicate") {
        let fields = if rfd26 { Fields::All } else { Fields::Deployed };
        match Predicate::read(value, fields) {
            Ok(read) => {
                let fields = read.as_ref().map(Predicate::fields).unwrap_or_default();
                let is_asked = |field: &&str| {
                    params.contains_key(*field) || (*field == "tags" && !tags.is_empty())
                };
                for field in fields.into_iter().filter(is_asked) {
                    causes.add(format!(
                        "predicate has \"{field}\" which conflicts with query parameter with same name"
                    ));
                }
                predicate = read;
            }
            Err(cause) => causes.0.push(cause),
        }
    }
    if let Some(name) = params.get("name") {
        causes.check(checks::name_pattern(name));
    }
    if let Some(size) = params.get("size") {
        causes.check(checks::size_text(size));
    }
    optional(&mut causes, params, "state", |value| checks::state(value, rfd26));
    uuids(&mut causes, params, &[("owner_uuid", "owner_uuid"), ("refs", "refs")]);
    if params.get("type").is_some_and(Value::is_array) {
        causes.check(checks::kind(params.get("type")));
    }
    if rfd26 {
        uuids(&mut causes, params, &ADDED.map(|name| (name, name)));
    }
    for (name, value) in &tags {
        if !value.is_string() {
            causes.add(format!("{name} must be a string"));
        }
    }
    causes.done()?;
    let tag = |(name, value): &(&str, &Value)| {
        Some((name.strip_prefix(TAG)?.to_owned(), value.as_str()?.to_owned()))
    };
    Ok(Filter {
        name: text(params, "name"),
        owner_uuid: text(params, "owner_uuid"),
        refs: text(params, "refs"),
        size: text(params, "size").and_then(|size| size.parse().ok()),
        state: text(params, "state").and_then(|state| state.parse::<State>().ok()),
        kind: text(params, "type"),
        predicate,
        vm_uuid: text(params, "vm_uuid"),
        billing_id: text(params, "billing_id"),
        tags: tags.iter().filter_map(tag).collect(),
    })
}

impl Filter {
    /// Returns the indexed fields that must have these values, the narrowest first.
    pub fn conditions(&self) -> Vec<(&'static str, &str)> {
        let name = self.name.as_deref().filter(|name| !name.contains('*'));
        let found = [
            ("vm_uuid", self.vm_uuid.as_deref()),
            ("refs", self.refs.as_deref()),
            ("name", name),
            ("owner_uuid", self.owner_uuid.as_deref()),
            ("state", self.state.map(State::name)),
        ];
        found.into_iter().filter_map(|(field, value)| Some((field, value?))).collect()
    }

    /// Returns true if the volume is to be listed.
    pub fn admits(&self, volume: &Volume) -> bool {
        let is = |want: &Option<String>, has: &str| want.as_deref().is_none_or(|want| want == has);
        is(&self.owner_uuid, volume.owner_uuid())
            && is(&self.kind, volume.kind())
            && self.name.as_deref().is_none_or(|pattern| fits(pattern, volume.name()))
            && self.refs.as_deref().is_none_or(|vm| volume.refs().contains(&vm))
            && self.size.is_none_or(|size| size == volume.size())
            && self.state.is_none_or(|state| state == volume.state())
            && is(&self.vm_uuid, volume.vm_uuid())
            && self.billing_id.as_deref().is_none_or(|id| volume.billing_id() == Some(id))
            && self.tags.iter().all(|(key, value)| volume.tag(key) == Some(value))
            && self.predicate.as_ref().is_none_or(|predicate| predicate.holds(volume))
    }
}

fn fits(pattern: &str, name: &str) -> bool {
    let (open, core) = match pattern.strip_prefix('*') {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    match (open, core.strip_suffix('*')) {
        (true, Some(core)) => name.contains(core),
        (true, None) => name.ends_with(core),
        (false, Some(core)) => name.starts_with(core),
        (false, None) => name == core,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const U: &str = "644810da-6ce1-40a9-93db-c23dfb772fd2";

    fn filter(params: Value, rfd26: bool) -> Result<Filter, Refused> {
        read(params.as_object().unwrap(), rfd26)
    }

    #[test] // V3
    fn keys_that_come_twice_are_refused() {
        let names = ["name", "owner_uuid", "predicate", "refs", "size", "state", "type"];
        for name in names.into_iter().chain(["vm_uuid", "billing_id", "tag.a"]) {
            assert!(filter(json!({name: ["ab", "ab"]}), true).is_err(), "{name}");
        }
    }

    #[test] // V115
    fn the_deployed_service_knows_no_filter_of_the_rfd() {
        for name in ["vm_uuid", "billing_id", "tag.a", "tag"] {
            let refused = filter(json!({name: U}), false).unwrap_err().to_string();
            assert!(refused.ends_with(&format!("invalid parameter: {name}")), "{refused}");
        }
        for name in ["tag", "tag."] {
            assert!(filter(json!({name: U}), true).is_err(), "{name}");
        }
    }

    #[test] // V116
    fn a_predicate_and_a_parameter_of_the_rfd_do_not_say_the_same() {
        for (field, value, name) in [
            ("tags", "a=b", "tag.a"),
            ("billing_id", U, "billing_id"),
            ("owner_uuid", U, "owner_uuid"),
        ] {
            let predicate = json!({"eq": [field, value]}).to_string();
            assert!(filter(json!({"predicate": predicate}), true).is_ok(), "{field}");
            assert!(filter(json!({"predicate": predicate}), false).is_err(), "{field}");
            let refused = filter(json!({"predicate": predicate, name: U}), true).unwrap_err();
            assert!(refused.to_string().contains("conflicts with"), "{field}: {refused}");
        }
    }

    #[test] // V6
    fn stars_open_the_ends_of_a_name() {
        for (pattern, name, expected) in [
            ("alp*", "alpha", true),
            ("*pha", "alpha", true),
            ("*lph*", "alpha", true),
            ("alpha", "alphabet", false),
            ("*alp", "alpha", false),
            ("ALPHA", "alpha", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }
}
