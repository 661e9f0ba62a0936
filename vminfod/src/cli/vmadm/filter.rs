// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The filters of `list` and `lookup`: operands `key=value`, all of which must hold. Pure.

use indexmap::IndexMap;

use super::fields::is_filter_key;
use super::outcome::Failure;
use super::regexp::Regexp;
use super::value::{array_index, member, text_form};
use super::vm::Vm;
use vm_model::js::to_number;

/// Filters as given, before validation.
#[derive(Debug, Default)]
pub struct Filters(IndexMap<String, String>);

impl Filters {
    /// Parses the operands. If a key is repeated, the last one counts.
    pub fn read(operands: &[String]) -> Result<Filters, Failure> {
        let mut filters = IndexMap::new();
        for operand in operands {
            let (key, value) = match operand.split_once('=') {
                Some(pair) => pair,
                None if to_number(operand) < 2.0 => {
                    let why = format!("Bad arguments: unable to split {operand}");
                    return Err(Failure::Usage(Some(why)));
                }
                None => (operand.as_str(), ""),
            };
            filters.insert(key.to_owned(), value.to_owned());
        }
        Ok(Filters(filters))
    }

    /// The first invalid key, in the order of the shipped program: numeric keys come first.
    pub fn invalid_key(&self) -> Option<&str> {
        let mut bad: Vec<&str> =
            self.0.keys().map(String::as_str).filter(|key| !is_filter_key(key)).collect();
        bad.sort_by_key(|key| array_index(key).unwrap_or(usize::MAX));
        bad.first().copied()
    }

    /// Returns the filters if all patterns are valid.
    pub fn ready(self) -> Result<Picker, Failure> {
        let tests = self.0.iter().map(|(key, value)| {
            let parts: Vec<String> = key.split('.').map(str::to_owned).collect();
            let test = match (value.strip_prefix('~'), parts.as_slice()) {
                (Some(pattern), _) => Test::Pattern(Regexp::new(pattern, true).map_err(|why| {
                    Failure::failed(format!("not a regular expression: {key}=~{pattern}: {why}"))
                })?),
                (None, [nics, _, mac]) if nics == "nics" && mac == "mac" => {
                    Test::Text(normal_mac(value))
                }
                (None, _) => Test::Text(value.clone()),
            };
            Ok((parts, test))
        });
        tests.collect::<Result<_, Failure>>().map(Picker)
    }
}

/// Valid filters.
#[derive(Debug)]
pub struct Picker(Vec<(Vec<String>, Test)>);

/// What a filter requires of a property.
#[derive(Debug)]
enum Test {
    Text(String),
    Pattern(Regexp),
}

impl Picker {
    /// Returns true if all filters hold for this VM.
    pub fn picks(&self, vm: &Vm) -> bool {
        self.0.iter().all(|(parts, test)| texts(vm, parts).iter().any(|text| test.holds(text)))
    }
}

impl Test {
    fn holds(&self, text: &str) -> bool {
        match self {
            Test::Text(wanted) => wanted == text,
            Test::Pattern(regexp) => regexp.is_match(text),
        }
    }
}

/// The texts that a filter compares: none if the property is absent or null, several for `*`.
fn texts(vm: &Vm, parts: &[String]) -> Vec<String> {
    let [first, rest @ ..] = parts else { return Vec::new() };
    let Some(top) = vm.object.get(first) else { return Vec::new() };
    match rest {
        [] => text_form(top).into_iter().collect(),
        // Keys that contain a dot cannot be addressed.
        [key] => member(top, key).and_then(text_form).into_iter().collect(),
        [index, key] if index == "*" => {
            let elements = top.as_array().into_iter().flatten();
            elements.filter_map(|element| text_form(member(element, key)?)).collect()
        }
        [index, key] if matches!(first.as_str(), "nics" | "disks") => {
            member(top, index).and_then(|it| text_form(member(it, key)?)).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Normalises a MAC address: two lower-case digits per part.
fn normal_mac(text: &str) -> String {
    let part = |part: &str| {
        let part = part.trim();
        let digits = part.strip_prefix("0x").or_else(|| part.strip_prefix("0X")).unwrap_or(part);
        let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
        let digits = digits.get(..end).unwrap_or_default();
        match u64::from_str_radix(digits, 16) {
            Ok(number) => format!("{number:02x}"),
            Err(_) => "NaN".to_owned(),
        }
    };
    text.split(':').map(part).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn picks(filters: &[&str], object: &Value) -> bool {
        let Value::Object(object) = object.clone() else { panic!("no object") };
        let operands: Vec<String> = filters.iter().map(|text| (*text).to_owned()).collect();
        let filters = Filters::read(&operands).unwrap();
        assert_eq!(filters.invalid_key(), None);
        filters.ready().unwrap().picks(&Vm::new(object))
    }

    #[test]
    fn values() {
        let vm = json!({
            "uuid": "u", "brand": "kvm", "alias": "Web=1", "quota": 10.5, "autoboot": false,
            "zoneid": null, "hostname": "", "tags": {"role": "web", "a.b": 1, "z": null},
            "nics": [{"mac": "02:00:00:00:00:0a", "ip": "10.0.0.1"}, {"ip": "10.0.0.2"}],
        });
        for filter in [
            "quota=10.5",
            "autoboot=false",
            "alias=Web=1",
            "alias=~^web",
            "type=KVM",
            "hostname=",
            "hostname",
            "tags.role=web",
            "nics.*.ip=10.0.0.2",
            "nics.1.ip=10.0.0.2",
            "nics.*.mac=2:0:0:0:0:A",
            "nics.0.mac=~^02",
            "uuid=~",
            "alias=~(?=web)",
        ] {
            assert!(picks(&[filter], &vm), "{filter}");
        }
        for filter in [
            "quota=10.50",
            "autoboot=0",
            "alias=web=1",
            "zoneid=null",
            "zoneid=~",
            "zoneid=",
            "hostname=x",
            "tags.a.b=1",
            "tags.z=",
            "nics.0.ip=10.0.0.2",
            "nics.2.ip=10.0.0.2",
            "nics.*.mac=~2:0:0:0:0:A",
            "foonics.0.ip=10.0.0.1",
            "nicsx0xip=10.0.0.1",
            "package_name=",
            "nics.00.ip=10.0.0.1",
        ] {
            assert!(!picks(&[filter], &vm), "{filter}");
        }
        assert!(picks(&["alias=no", "alias=Web=1"], &vm), "the last of one key counts");
        assert!(!picks(&["alias=Web=1", "quota=1"], &vm), "all must hold");
    }

    #[test]
    fn operands() {
        let read = |operand: &str| Filters::read(&[operand.to_owned()]);
        for operand in ["1", "0", "", "-3", "0x1", " "] {
            assert!(matches!(read(operand), Err(Failure::Usage(Some(_)))), "{operand:?}");
        }
        for operand in ["2", "alias", "1=1"] {
            assert!(read(operand).is_ok(), "{operand:?}");
        }
        let filters = Filters::read(&["x=1".into(), "alias=1".into(), "7=1".into()]).unwrap();
        assert_eq!(filters.invalid_key(), Some("7"));
        let why = "not a regular expression: alias=~*: Invalid atom character";
        assert_eq!(read("alias=~*").unwrap().ready().unwrap_err(), Failure::failed(why));
    }
}
