// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The platform's `kstat`, as far as our scripts use it: JSON (`-j`), with the module, the class, the instance and
//! the name that is asked for. It prints and ends as the program of illumos since 2016 does: the members of `data`
//! by name, `crtime` and `snaptime` among them, the kstats by module and instance; status 1, and an empty list,
//! where nothing matched.

use serde_json::{Map, Value, json};

use crate::clock;
use crate::getopt::{Failed, Parsed};
use crate::node::Node;

/// Seconds since 1970: when the node booted.
const BOOTED: i64 = 1_700_000_000;
/// The type of a kstat whose data are pairs of a name and a value.
const NAMED: u8 = 1;

/// What the script that vminfod starts prints for its operand; its status is 0 where kstat's is 1.
pub(crate) fn of_script(node: &Node, operands: &[String]) -> Result<String, Failed> {
    let mut args = ["-j", "-m", "zones", "-c", "zone_misc"].map(String::from).to_vec();
    if let [id, ..] = operands {
        args.extend(["-i".to_owned(), id.clone()]);
    }
    match kstat(node, &args)? {
        (1, _) if operands.is_empty() => Err(Failed(1, String::new())),
        (_, text) => Ok(text),
    }
}

/// Runs `kstat`; returns its status, 0 or 1, and what it prints.
pub(crate) fn kstat(node: &Node, args: &[String]) -> Result<(u8, String), Failed> {
    let usage =
        |what: &str| Failed(2, format!("{what}\nUsage:\nkstat [ -Cjlpq ] [ -T d|u ] [ -c class ]"));
    let parsed = Parsed::read(args, "j", "mcin").map_err(|what| usage(&what))?;
    if !parsed.has('j') || !parsed.operands.is_empty() {
        return Err(usage("this node prints JSON of the kstats that options name"));
    }
    let wanted = [("module", 'm'), ("class", 'c'), ("instance", 'i'), ("name", 'n')];
    let wanted = wanted.map(|(member, option)| (member, parsed.value(option)));
    if wanted.iter().any(|(_, text)| text.is_some_and(|text| text.contains(['*', '?', '[', '/']))) {
        return Err(usage("this node knows no patterns"));
    }
    let is_wanted = |one: &&Map<String, Value>| {
        wanted.iter().all(|(member, text)| {
            let shown = match &one[*member] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            text.is_none_or(|text| text == shown)
        })
    };
    let all = all(node)?;
    let printed: Vec<String> = all.iter().filter(is_wanted).map(print).collect();
    Ok((u8::from(printed.is_empty()), format!("[{}]\n", printed.join(", "))))
}

/// Every kstat that this node has, by module and instance.
fn all(node: &Node) -> Result<Vec<Map<String, Value>>, Failed> {
    let zones = node.zones()?;
    let mut active = vec![(0, "global", 1, 0, BOOTED)];
    for zone in zones.listed(false) {
        if let Some(k) = &zone.kstat {
            active.push((k.instance, &zone.zonename, k.init_pid, k.init_restarts, k.boot_time));
        }
    }
    active.sort_by_key(|(instance, ..)| *instance);
    let mut all = Vec::new();
    for (instance, zonename, ..) in &active {
        // Another module counts the same zones, by the same numbers.
        let data =
            json!({"nread": 0, "nwritten": 0, "reads": 0, "writes": 0, "zonename": zonename});
        all.push(one("zone_vfs", "zone_vfs", *instance, zonename, data));
    }
    for (instance, zonename, pid, restarts, boot) in &active {
        let busy = pid.saturating_mul(1_000_000);
        let data = json!({
            "avenrun_15min": 1, "avenrun_1min": 1, "avenrun_5min": 1, "boot_time": boot,
            "forkfail_cap": 0, "forkfail_misc": 0, "forkfail_nomem": 0, "forkfail_noproc": 0,
            "init_pid": pid, "init_restarts": restarts, "nsec_sys": busy / 2, "nsec_user": busy,
            "nsec_waitrq": pid, "zonename": zonename,
        });
        all.push(one("zones", "zone_misc", *instance, zonename, data));
    }
    Ok(all)
}

fn one(
    module: &str,
    class: &str,
    instance: i64,
    zonename: &str,
    data: Value,
) -> Map<String, Value> {
    let name: String = zonename.chars().take(30).collect();
    let entries = [
        ("module", json!(module)),
        ("instance", json!(instance)),
        ("name", json!(name)),
        ("class", json!(class)),
        ("data", data),
    ];
    entries.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
}

/// The text of one kstat: indented with tabs, times in seconds since the boot.
fn print(kstat: &Map<String, Value>) -> String {
    let snaptime = clock::now().as_millisecond().saturating_sub(BOOTED * 1000);
    let snaptime = format!("{}.{:03}000000", snaptime / 1000, snaptime % 1000);
    let mut data: Vec<(&str, String)> = vec![("crtime", "31.415926535".to_owned())];
    data.push(("snaptime", snaptime.clone()));
    for (name, value) in kstat["data"].as_object().into_iter().flatten() {
        data.push((name, value.to_string()));
    }
    data.sort_by_key(|(name, _)| name.to_ascii_lowercase());
    let data: Vec<String> =
        data.iter().map(|(name, value)| format!("\t\t\"{name}\": {value}")).collect();
    format!(
        "{{\n\t\"module\": {},\n\t\"instance\": {},\n\t\"name\": {},\n\t\"class\": {},\n\t\"type\": {NAMED},\n\
         \t\"snaptime\": {snaptime},\n\t\"data\": {{\n{}\n\t}}\n}}",
        kstat["module"],
        kstat["instance"],
        kstat["name"],
        kstat["class"],
        data.join(",\n")
    )
}
