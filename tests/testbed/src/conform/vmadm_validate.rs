// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed conform vmadm-validate FILE`: payloads that the real vmadm judged, judged by the simulated one:
//! `validate`, `create` and `update`. Compared are the exit status and the text, and of what is accepted: what is
//! dropped without a word, what is added and derived, the commands of zfs, the configuration of the zone and
//! the files.

mod node; // the node that a recording describes
#[cfg(test)]
mod objects; // whole objects as payloads
mod rows; // where ours answers otherwise on purpose
mod zonecfg; // what recorded input of zonecfg makes of a configuration

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value, json};
use simnode::config;
use simnode::refusal::Refusal;
use simnode::vmadm::judge::{self, Answer};
use simnode::vmadm::table::Action;
use simnode::vmadm::{create, update, volumes};
use simnode::xml::Element;

use super::tally::{Tally, no_flags};
use node::Described;
use zonecfg::Unknown;

/// The name of the recording in a directory of fixtures.
pub(super) const FILE: &str = "vmadm-validate.jsonl";
/// What vmadm answered to one payload, or what is wrong with our reading of that.
struct Judged {
    differences: Vec<String>,
}

/// Compares with the recording at `path`, a file or a directory that has one.
pub(super) fn check(path: &Path, flags: &[String]) -> anyhow::Result<Tally> {
    no_flags(flags)?;
    let file = if path.is_dir() { path.join(FILE) } else { path.to_path_buf() };
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("cannot read {}", file.display()))?;
    let mut lines = text.lines().enumerate().map(|(n, line)| {
        serde_json::from_str::<Value>(line).with_context(|| format!("{}:{}", file.display(), n + 1))
    });
    let head = lines.next().context("the recording is empty")??;
    let described = Described::read(&head)?;
    let mut vms: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    let (mut tally, mut rows) = (Tally::default(), rows::Rows::default());
    for line in lines {
        let row = line?;
        let text = |key: &str| row[key].as_str().unwrap_or_default();
        if row["record"] == "vm" {
            let object = row["object"].as_object().cloned();
            vms.insert(text("name").to_owned(), object.context("a VM is no object")?);
            continue;
        }
        let name = format!("{} [{}]", text("id"), text("doc"));
        let judged = match text("action") {
            "create" => of_create(&described, &row),
            "update" => {
                let vm =
                    vms.get(text("vm")).with_context(|| format!("{name}: no VM {}", text("vm")))?;
                of_update(&described, &row, vm)
            }
            other => {
                tally.notes.push(format!("left out: {name}: unknown step {other:?}"));
                continue;
            }
        };
        match judged {
            Ok(judged) => rows.enter(&mut tally, &row, &name, judged.differences),
            Err(error) => match error.downcast_ref::<Unknown>() {
                Some(unknown) => tally.notes.push(format!("left out: {name}: {unknown}")),
                None => tally.case(&name, &[format!("{error:#}")]),
            },
        }
    }
    rows.end(&mut tally);
    ensure!(tally.passed + tally.failures.len() > 0, "the recording has no payloads");
    Ok(tally)
}

impl Judged {
    fn new() -> Judged {
        Judged { differences: Vec::new() }
    }

    fn compare(&mut self, what: &str, expected: &Value, got: &Value) {
        if expected != got {
            self.differences.push(format!("{what}: expected: {expected}, got: {got}"));
        }
    }

    /// What `vmadm validate` answered, and its bytes.
    fn validate(
        &mut self,
        row: &Value,
        action: Action,
        brand: Option<&str>,
        described: &Described,
    ) {
        let none = Map::new();
        let payload = row["payload"].as_object().unwrap_or(&none);
        let around = described.around(&[]);
        let of_payload = payload.get("brand").and_then(Value::as_str);
        let brand = if action == Action::Update { brand } else { of_payload };
        let word = row["action"].as_str().unwrap_or_default();
        let (stderr, exit) = judge::command(word, brand, payload, &around);
        let answer = judge::validate(action, payload, brand, &around);
        let result = answer.map_or_else(|refusal| outcome(&refusal), |answer| said(&answer));
        self.compare("validate", &without_text(&row["result"]), &result);
        self.compare(
            "validate prints",
            &row["cli"],
            &json!({"exit": exit, "stdout": "", "stderr": stderr}),
        );
    }

    /// What was refused; returns true if the payload was accepted by both.
    fn refusal(&mut self, recorded: &Value, got: Option<&Refusal>) -> bool {
        let expected = match (&recorded["error"], &recorded["crash"]) {
            (Value::String(error), _) => json!({ "error": error }),
            (_, Value::String(_)) => json!({ "crash": true }),
            _ => json!("ok"),
        };
        let got = got.map_or(json!("ok"), outcome);
        self.compare("answer", &expected, &got);
        expected == "ok" && got == "ok"
    }

    fn dropped(&mut self, recorded: &Value, given: &Map<String, Value>, kept: &[&str]) {
        // What vmadm sets itself was dropped before.
        let is_own = |key: &&String| matches!(key.as_str(), "zlog_mode" | "zlog_name");
        let is_gone = |key: &&String| is_own(key) || !kept.contains(&key.as_str());
        let dropped: Vec<&String> = given.keys().filter(is_gone).collect();
        self.compare("dropped", &recorded["dropped"], &json!(dropped));
    }

    fn config(&mut self, expected: &Element, got: &Element) {
        let (expected, got) = (zonecfg::lines(expected), zonecfg::lines(got));
        let only = |these: &[String], those: &[String]| -> Vec<String> {
            these.iter().filter(|line| !those.contains(line)).cloned().collect()
        };
        let (missing, extra) = (only(&expected, &got), only(&got, &expected));
        if !missing.is_empty() || !extra.is_empty() {
            self.differences.push(format!("configuration: expected: {missing:?}, got: {extra:?}"));
        }
    }
}

fn outcome(refusal: &Refusal) -> Value {
    match refusal {
        Refusal::Dies(_) => json!({ "crash": true }),
        other => json!({ "error": other.to_string() }),
    }
}

fn said(answer: &Answer) -> Value {
    match answer {
        Answer::BadBrand(brand) => json!({ "bad_brand": brand }),
        Answer::Lists(lists) if *lists == judge::Verdict::default() => json!("ok"),
        Answer::Lists(lists) => json!({
            "bad_values": lists.bad_values,
            "bad_properties": lists.bad_properties,
            "missing_properties": lists.missing_properties,
        }),
    }
}

/// An exception's text is of the language that vmadm is written in.
fn without_text(result: &Value) -> Value {
    if result["crash"].is_string() { json!({ "crash": true }) } else { result.clone() }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(|line| line.as_str().map(str::to_owned))
        .collect()
}

fn of_create(described: &Described, row: &Value) -> anyhow::Result<Judged> {
    let mut judged = Judged::new();
    let given = row["payload"].as_object().context("the payload is no object")?;
    judged.validate(row, Action::Create, None, described);
    let recorded = &row["create"];
    let mut around = described.around(&[]);
    let made = create::create(given, &mut around);
    if !judged.refusal(recorded, made.as_ref().err()) {
        return Ok(judged);
    }
    let Ok(mut vm) = made else { bail!("accepted and refused") };
    judged.dropped(recorded, given, &vm.keys().map(String::as_str).collect::<Vec<_>>());
    any_macs(given, &mut vm, &recorded["set"])?;
    let set: Map<String, Value> = vm
        .iter()
        .filter(|(key, value)| given.get(*key) != Some(value))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    judged.compare("set", &unset(&recorded["set"], given), &Value::Object(set));
    let steps: Vec<String> =
        volumes::before_zone(&vm, &around).iter().map(ToString::to_string).collect();
    judged.compare("zfs", &recorded["zfs"], &json!(steps));
    let input = texts(&recorded["zonecfg"]);
    vm.extend(described.own(&vm));
    let zonepath = format!("/zones/{}", vm["uuid"].as_str().unwrap_or_default());
    let got = config::zone_xml(&vm, &zonepath, 0)?;
    let expected = zonecfg::apply(Element::new("zone", &[]), &input)?;
    judged.config(&expected, &got);
    Ok(judged)
}

/// A property without a value is null here.
fn unset(set: &Value, given: &Map<String, Value>) -> Value {
    let of = |value: &Value| if value == "<unset>" { Value::Null } else { value.clone() };
    let is_new = |key: &str| key != "zonename" && !given.get(key).is_some_and(Value::is_null);
    let members = set.as_object().into_iter().flatten();
    members
        .filter(|(key, value)| *value != "<unset>" || is_new(key))
        .map(|(k, v)| (k.clone(), of(v)))
        .collect()
}

/// A MAC that vmadm made is any: ours becomes the recorded one.
fn any_macs(
    given: &Map<String, Value>,
    made: &mut Map<String, Value>,
    set: &Value,
) -> anyhow::Result<()> {
    let nics = made.get_mut("nics").and_then(Value::as_array_mut);
    for (n, nic) in nics.into_iter().flatten().enumerate() {
        let asked = &given["nics"][n];
        if asked["mac"].is_null() && asked["vrrp_vrid"].is_null() {
            let own = nic["mac"].as_str().and_then(|mac| mac.parse::<sdc_clients::MacAddr>().ok());
            own.context("a NIC was made without a MAC")?;
            nic["mac"] = set["nics"][n]["mac"].clone();
        }
    }
    Ok(())
}

fn of_update(
    described: &Described,
    row: &Value,
    object: &Map<String, Value>,
) -> anyhow::Result<Judged> {
    let mut judged = Judged::new();
    let given = row["payload"].as_object().context("the payload is no object")?;
    let brand = object["brand"].as_str().context("a VM without brand")?;
    judged.validate(row, Action::Update, Some(brand), described);
    let recorded = &row["update"];
    let before = node::configuration(object)?;
    let subject = node::subject(object, &before);
    let changed =
        update::update(&subject, given, &mut described.around(std::slice::from_ref(object)));
    if !judged.refusal(recorded, changed.as_ref().err()) {
        return Ok(judged);
    }
    let Ok(changes) = changed else { bail!("accepted and refused") };
    // What is added is in the list of its kind.
    let added = given
        .keys()
        .filter(|key| key.strip_prefix("add_").is_some_and(|of| changes.contains_key(of)));
    let kept: Vec<&str> = changes.keys().chain(added).map(String::as_str).collect();
    judged.dropped(recorded, given, &kept);
    let is_set = |key: &str, value: &Value| {
        let added = ["nics", "disks", "filesystems", "pci_devices"].contains(&key);
        let before = given.get(key).or_else(|| given.get(&format!("add_{key}")).filter(|_| added));
        before != Some(value) || added && given.contains_key(&format!("add_{key}"))
    };
    let set: Map<String, Value> = changes
        .iter()
        .filter(|(key, value)| is_set(key, value))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    judged.compare("set", &unset(&recorded["set"], given), &Value::Object(set));
    let mut commands: Vec<String> =
        volumes::volumes(&changes).iter().map(ToString::to_string).collect();
    commands.extend(volumes::removed(&subject.disks, &changes).iter().map(ToString::to_string));
    judged.compare("zfs", &recorded["commands"], &json!(commands));
    let mut got = before.clone();
    config::changes::apply_changes(&mut got, &changes)?;
    let expected = zonecfg::apply(before, &texts(&recorded["zonecfg"]))?;
    judged.config(&expected, &got);
    judged.compare("files", &recorded["files"], &node::files(object, &changes));
    Ok(judged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // P1–P37
    fn the_recorded_payloads_are_judged_alike() {
        let dir = recordings::unpacked().unwrap();
        let tally = check(dir.path(), &[]).unwrap();
        assert_eq!(tally.failures, Vec::<String>::new());
        assert!(tally.passed >= 530, "{}", tally.passed);
    }

    #[test]
    fn an_unknown_step_leaves_its_row_out() {
        let dir = recordings::unpacked().unwrap();
        let text = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
        let text = text.replacen("\"action\": \"create\"", "\"action\": \"reprovision\"", 1);
        let file = dir.path().join("other.jsonl");
        std::fs::write(&file, text.replacen("set brand=lx", "set hostid=1", 1)).unwrap();
        let tally = check(&file, &[]).unwrap();
        let left = tally.notes.iter().filter(|note| note.starts_with("left out: ")).count();
        assert_eq!((left, tally.failures.len()), (2, 0), "{:?}", tally.notes);
    }
}
