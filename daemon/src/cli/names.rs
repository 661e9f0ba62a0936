// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The names of VMs and other things: as they are shown, and as people type them, which is a uuid, the beginning of
//! one, or a name.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use sdc_clients::vmapi::{Vm, VmQuery, Vmapi};
use sdc_clients::vminfod::{VmFields as _, Vminfod};
use sdc_clients::{quoted, uuid_value};
use serde_json::Value;

use super::program::Usage;
use super::screen::visible;
use super::span::span;

/// The fewest characters of a uuid's beginning.
const SHORTEST: usize = 4;
/// A hold must not wait for a vminfod that hangs.
const PATIENCE: Duration = Duration::from_secs(3);
/// VMs whose names VMAPI is asked for in one request.
const AT_ONCE: usize = 200;
/// Characters that a name has to have in common with what was typed to be offered.
const NEAR: usize = 3;
/// VMs that are named where several fit.
const SHOWN: usize = 5;

/// Names by uuid.
#[derive(Debug, Clone, Default)]
pub struct Names(BTreeMap<String, String>);

impl Names {
    /// Returns those of which there is one.
    pub fn of(named: impl Iterator<Item = (String, String)>) -> Names {
        let named = named.filter(|(_, name)| !name.is_empty());
        Names(named.map(|(uuid, name)| (uuid, visible(&name))).collect())
    }

    /// Asks vminfod for the aliases of the VMs; there are none where it does not answer in time: uuids do.
    pub async fn of_node(vminfod: &str, program: &str) -> Names {
        let asked = async { Vminfod::new(vminfod, &format!("{program}-cli"))?.vms(false).await };
        let Ok(Ok(view)) = tokio::time::timeout(PATIENCE, asked).await else {
            return Names::default();
        };
        let vms = view.vms.iter();
        Names::of(vms.filter_map(|vm| Some((vm.uuid()?.to_owned(), vm.alias()?.to_owned()))))
    }

    /// Asks VMAPI for the aliases of these VMs; those that it does not report, or cannot, have none. A part of them is
    /// asked for at a time: the query is a line of a request.
    pub async fn of_vmapi(vmapi: &Vmapi, all: BTreeSet<String>) -> Names {
        let all: Vec<String> = all.into_iter().collect();
        let mut vms = Vec::new();
        for uuids in all.chunks(AT_ONCE) {
            let fields = ["uuid", "alias", "state"].map(str::to_owned).into();
            let query = VmQuery { uuids: uuids.to_vec(), fields, ..VmQuery::default() };
            vms.extend(vmapi.list_vms(&query).await.unwrap_or_default());
        }
        let alias = |vm: &Vm| vm.other.get("alias").and_then(Value::as_str).map(str::to_owned);
        Names::of(vms.iter().filter_map(|vm| Some((vm.uuid.clone(), alias(vm)?))))
    }

    /// Returns these names and those.
    #[must_use]
    pub fn and(mut self, those: Names) -> Names {
        self.0.extend(those.0);
        self
    }

    /// Returns the name of a thing.
    pub fn known(&self, uuid: &str) -> Option<&str> {
        self.0.get(uuid).map(String::as_str)
    }

    /// Returns how people call a thing; one of an unknown name by its uuid.
    pub fn name<'a>(&'a self, uuid: &'a str) -> &'a str {
        self.known(uuid).unwrap_or(uuid)
    }

    /// Returns a sentence with names in place of uuids. A name that has a uuid in it stays as it is, and so does a uuid
    /// in a path: no dataset is called after an alias.
    pub fn in_text(&self, text: &str) -> String {
        let (mut told, mut rest) = (String::new(), text);
        while let Some(first) = rest.chars().next() {
            // No uuid begins with another one, so the greatest that is not above the rest is the one it begins with.
            let below = self.0.range::<str, _>((Bound::Unbounded, Bound::Included(rest)));
            match below.last().and_then(|(uuid, name)| Some((rest.strip_prefix(&**uuid)?, name))) {
                Some((after, name)) if !told.ends_with('/') => {
                    told.push_str(name);
                    rest = after;
                }
                _ => {
                    told.push(first);
                    rest = rest.get(first.len_utf8()..).unwrap_or_default();
                }
            }
        }
        told
    }

    /// Returns a page with names in place of uuids in each of its texts; the names of fields stay.
    pub fn in_page(&self, page: Value) -> Value {
        match page {
            Value::String(text) => self.in_text(&text).into(),
            Value::Array(all) => all.into_iter().map(|it| self.in_page(it)).collect(),
            Value::Object(all) => {
                all.into_iter().map(|(key, it)| (key, self.in_page(it))).collect()
            }
            other => other,
        }
    }
}

/// A VM that was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedVm {
    pub uuid: String,
    /// Whether the node has it; none if vminfod does not answer.
    pub is_here: Option<bool>,
}

/// Finds a VM by what was typed. A whole uuid need not be here, nor need vminfod answer.
pub async fn vm(vminfod: &str, program: &str, typed: &str) -> Result<NamedVm, Usage> {
    let whole = uuid::Uuid::try_parse(typed).ok().map(|_| uuid_value(typed));
    let asked = async { Vminfod::new(vminfod, &format!("{program}-cli"))?.vms(false).await };
    let answer = match tokio::time::timeout(PATIENCE, asked).await {
        Ok(answer) => answer.map_err(|error| crate::log::chain(&error)),
        Err(_) => Err(format!("no answer in {}", span(PATIENCE))),
    };
    let vms = match (answer, &whole) {
        (Ok(view), _) => view.vms,
        (Err(_), Some(uuid)) => return Ok(NamedVm { uuid: uuid.clone(), is_here: None }),
        (Err(why), None) => {
            return Err(Usage(format!(
                "{typed}: without vminfod only a whole uuid is known ({why})"
            )));
        }
    };
    let mut known = Vec::new();
    for vm in &vms {
        let Some(uuid) = vm.uuid() else { continue };
        known.push((uuid, vm.alias().unwrap_or_default()));
        // A zone's name need not be the uuid.
        known.extend(vm.zonename().filter(|name| *name != uuid).map(|name| (uuid, name)));
    }
    match whole {
        Some(uuid) => {
            let is_here = known.iter().any(|(known, _)| *known == uuid);
            Ok(NamedVm { uuid, is_here: Some(is_here) })
        }
        None => {
            let uuid = find(&known, typed)?;
            Ok(NamedVm { uuid, is_here: Some(true) })
        }
    }
}

/// What is named, in the words of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// One of them.
    pub one: &'static str,
    pub name: &'static str,
}

/// VMs by their aliases.
const VM: Kind = Kind { one: "VM", name: "alias" };

/// Finds the one VM, as [`find_kind`] does.
pub fn find(known: &[(&str, &str)], typed: &str) -> Result<String, Usage> {
    find_kind(VM, known, typed)
}

/// Finds the one thing, among uuids and names, with this name, or with a uuid that begins so; one that has
/// several names stands there as often. Tenants choose names: one that is the
/// beginning of another thing's uuid makes what was typed ambiguous, and never means theirs instead. A whole uuid is
/// that of its thing, whatever is named so.
pub fn find_kind(kind: Kind, known: &[(&str, &str)], typed: &str) -> Result<String, Usage> {
    let Kind { one, name } = kind;
    let lower = typed.to_ascii_lowercase();
    if let Some((uuid, _)) = known.iter().find(|(uuid, _)| *uuid == lower) {
        return Ok((*uuid).to_owned());
    }
    let begins = |uuid: &str| typed.len() >= SHORTEST && uuid.starts_with(&lower);
    let fits = known.iter().filter(|(uuid, name)| *name == typed || begins(uuid));
    let mut fits: Vec<_> = fits.collect();
    fits.dedup_by_key(|(uuid, _)| *uuid);
    match fits.as_slice() {
        // An empty alias is none.
        _ if typed.is_empty() => Err(Usage(format!("an empty name of a {one}"))),
        [(uuid, _)] => Ok((*uuid).to_owned()),
        [] => {
            let near =
                nearest(known, typed).map(|near| format!("; did you mean {}?", visible(near)));
            let near = near.unwrap_or_default();
            let least = format!("at least {SHORTEST} characters");
            Err(Usage(format!(
                "no {one} has the {name} {}, or a uuid that begins so ({least}){near}",
                quoted(typed)
            )))
        }
        several => {
            let named = |(uuid, alias): &&(&str, &str)| format!("{uuid} {}", visible(alias));
            let names = several.iter().take(SHOWN).map(named);
            let names = names.collect::<Vec<_>>().join(", ");
            Err(Usage(format!("{} fits {} {one}s: {names}", quoted(typed), several.len())))
        }
    }
}

/// Returns a uuid as services spell it: for options that take no name.
pub fn uuid(typed: &str) -> Result<String, Usage> {
    match uuid::Uuid::try_parse(typed) {
        Ok(_) => Ok(uuid_value(typed)),
        Err(_) => Err(Usage("expected a uuid".to_owned())),
    }
}

/// The states that a VM's object may have.
const STATES: [&str; 16] = [
    "configured",
    "destroyed",
    "down",
    "failed",
    "incomplete",
    "installed",
    "mounted",
    "provisioning",
    "ready",
    "receiving",
    "running",
    "shutting_down",
    "stopped",
    "stopping",
    "unavailable",
    "unknown",
];

/// Refuses what is no state of a VM.
pub fn is_state(typed: &str) -> Result<(), Usage> {
    match STATES.contains(&typed) {
        true => Ok(()),
        false => Err(Usage(format!(
            "no VM has the state {}: there are {}",
            quoted(typed),
            STATES.join(", ")
        ))),
    }
}

/// Returns the uuid or the name that begins most like what was typed.
fn nearest<'a>(known: &[(&'a str, &'a str)], typed: &str) -> Option<&'a str> {
    let common = |name: &str| name.chars().zip(typed.chars()).take_while(|(a, b)| a == b).count();
    let names = known.iter().flat_map(|(uuid, name)| [*uuid, *name]);
    names.filter(|name| common(name) >= NEAR).max_by_key(|name| common(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn finds_one_vm_or_says_which_fit() {
        let known = [
            ("0b4a4a3e-1", "web"),
            ("0b4a9999-2", "db"),
            ("77777777-3", "db"),
            ("88888888-4", ""),
            ("88888888-4", "build-zone"),
            // Tenants' words.
            ("99999999-5", "8888"),
            ("aaaaaaaa-6", "esc\u{1b}[2J"),
            ("aaaaaaaa-7", ""),
        ];
        for (typed, found) in [
            ("web", Some("0b4a4a3e-1")),
            ("0B4A4", Some("0b4a4a3e-1")),
            ("7777", Some("77777777-3")),
            ("build-zone", Some("88888888-4")),
        ] {
            assert_eq!(find(&known, typed).ok().as_deref(), found, "{typed}");
        }
        for (typed, why) in [
            ("db", "\"db\" fits 2 VMs: 0b4a9999-2 db, 77777777-3 db"),
            ("0b4a", "\"0b4a\" fits 2 VMs: 0b4a4a3e-1 web, 0b4a9999-2 db"),
            ("0b4", "no VM has the alias \"0b4\""),
            ("", "an empty name"),
            ("8888", "\"8888\" fits 2 VMs: 88888888-4 , 99999999-5 8888"),
            ("aaaa", "\"aaaa\" fits 2 VMs: aaaaaaaa-6 esc\\u001b[2J, aaaaaaaa-7 "),
        ] {
            let error = find(&known, typed).unwrap_err().to_string();
            assert!(error.starts_with(why), "{typed}: {error}");
        }
    }

    #[test]
    fn a_page_has_names_in_the_place_of_uuids() {
        let named = [("aaaa-1", "ha"), ("bbbb-2", ""), ("cccc-3", "aaaa-1\u{1b}")];
        let names = Names::of(named.map(|(a, b)| (a.to_owned(), b.to_owned())).into_iter());
        assert_eq!(names.in_text("aaaa-1: no room; bbbb-2: none"), "ha: no room; bbbb-2: none");
        // A tenant's name is not read again, and moves no cursor.
        assert_eq!(names.in_text("ä aaaacccc-3aaaa-1"), "ä aaaaaaaa-1\\u001bha");
        // A user types what is shown: there is no dataset zones/ha.
        assert_eq!(
            names.in_text("aaaa-1: zones/aaaa-1/data is full"),
            "ha: zones/aaaa-1/data is full"
        );
        assert_eq!((names.name("aaaa-1"), names.name("bbbb-2")), ("ha", "bbbb-2"));
        let page = json!({"aaaa-1": {"vms": ["aaaa-1", 1, null]}, "text": "x aaaa-1"});
        assert_eq!(
            names.in_page(page),
            json!({"aaaa-1": {"vms": ["ha", 1, null]}, "text": "x ha"})
        );
    }

    #[test]
    fn the_nearest_name_is_offered() {
        let known = [("aaaa-1", "cn-west"), ("bbbb-2", "cn-east")];
        assert_eq!(nearest(&known, "cn-eats"), Some("cn-east"));
        assert_eq!(nearest(&known, "x"), None);
    }
}
