// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What recorded input of zonecfg makes of a zone's configuration.

use simnode::xml::Element;

/// A line of the input that is not known here.
#[derive(Debug, thiserror::Error)]
#[error("unknown input of zonecfg: {0:?}")]
pub(super) struct Unknown(String);

/// What is being added, from `add` to `end`.
struct Open(Element);

/// Applies input to a configuration.
pub(super) fn apply(mut zone: Element, input: &[String]) -> Result<Element, Unknown> {
    let mut open: Option<Open> = None;
    for line in input {
        open = match open {
            Some(element) => inside(element, line, &mut zone)?,
            None => outside(line, &mut zone)?,
        };
    }
    Ok(zone)
}

/// A line between `add` and `end`.
fn inside(
    Open(mut element): Open,
    line: &str,
    zone: &mut Element,
) -> Result<Option<Open>, Unknown> {
    let unknown = || Unknown(line.to_owned());
    if line == "end" {
        zone.children.push(element);
        return Ok(None);
    }
    if let Some((name, value)) = property(line, "add property") {
        element.set_value("net-attr", name, Some(value));
    } else if let Some(option) = line.strip_prefix("add options ") {
        element.children.push(Element::new("fsoption", &[("name", option.trim_matches('"'))]));
    } else {
        let (name, value) =
            line.strip_prefix("set ").and_then(|rest| rest.split_once('=')).ok_or_else(unknown)?;
        let name = match name {
            "dir" => "directory",
            "physical" | "mac-addr" | "global-nic" | "vlan-id" | "match" | "special" | "type"
            | "raw" => name,
            _ => return Err(unknown()),
        };
        element.put(name, value);
    }
    Ok(Some(Open(element)))
}

/// `VERB property (name=N, value="V")`
fn property<'a>(line: &'a str, verb: &str) -> Option<(&'a str, &'a str)> {
    let rest = line.strip_prefix(verb)?.trim_start().strip_prefix("(name=")?;
    let (name, value) = rest.split_once(',')?;
    Some((name, value.trim_start().strip_prefix("value=\"")?.split('"').next()?))
}

fn outside(line: &str, zone: &mut Element) -> Result<Option<Open>, Unknown> {
    let unknown = || Unknown(line.to_owned());
    match line {
        "create -b" => return Ok(None),
        "add net" => return Ok(Some(Open(Element::new("network", &[])))),
        "add device" => return Ok(Some(Open(Element::new("device", &[])))),
        "add fs" => return Ok(Some(Open(Element::new("filesystem", &[])))),
        _ => {}
    }
    if let Some((name, value)) = line.strip_prefix("set ").and_then(|rest| rest.split_once('=')) {
        let value = value.trim_matches('"');
        match name {
            "uuid" => zone.put("name", value),
            "zonepath" | "brand" | "ip-type" | "limitpriv" | "autoboot" | "fs-allowed" => {
                zone.put(name, value)
            }
            _ => control(zone, name, Some(value)).ok_or_else(unknown)?,
        }
        return Ok(None);
    }
    if let Some(name) = line.strip_prefix("clear ") {
        control(zone, name, None).ok_or_else(unknown)?;
        return Ok(None);
    }
    if line == "remove capped-cpu" {
        control(zone, "cpu-cap", None).ok_or_else(unknown)?;
        return Ok(None);
    }
    for (head, tag, key) in [
        ("remove fs dir=", "filesystem", "directory"),
        ("remove -F device match=", "device", "match"),
        ("remove net mac-addr=", "network", "mac-addr"),
    ] {
        if let Some(value) = line.strip_prefix(head) {
            zone.children.retain(|child| child.name != tag || !same(tag, child.get(key), value));
            return Ok(None);
        }
    }
    let mut statements = line.split(';').map(str::trim).filter(|statement| !statement.is_empty());
    while let Some(statement) = statements.next() {
        if let Some(name) = statement.strip_prefix("remove -F attr name=") {
            zone.set_value("attr", name, None);
            continue;
        }
        let mut of: Vec<&str> = Vec::new();
        loop {
            match statements.next().ok_or_else(unknown)? {
                "end" => break,
                inner => of.push(inner),
            }
        }
        resource(zone, statement, &of).ok_or_else(unknown)?;
    }
    Ok(None)
}

/// The values may be any text, and alike where the MAC is.
fn same(tag: &str, known: Option<&str>, value: &str) -> bool {
    match tag {
        "network" => known.map(short) == Some(short(value)),
        _ => known == Some(value),
    }
}

fn short(mac: &str) -> String {
    let parts =
        mac.split(':').map(|part| u8::from_str_radix(part, 16).unwrap_or_default().to_string());
    parts.collect::<Vec<_>>().join(":")
}

/// `add` or `select` of a resource, with what is between that and `end`.
fn resource(zone: &mut Element, statement: &str, of: &[&str]) -> Option<()> {
    let value = |name: &str| {
        let head = format!("set {name}=");
        of.iter()
            .find_map(|inner| inner.strip_prefix(head.as_str()))
            .map(|value| value.trim_matches('"'))
    };
    match statement {
        "add attr" => zone.set_value("attr", value("name")?, Some(value("value")?)),
        "add capped-memory" | "select capped-memory" => {
            for (name, limit) in [
                ("physical", "max-physical-memory"),
                ("locked", "max-locked-memory"),
                ("swap", "max-swap"),
            ] {
                let Some(size) = value(name) else { continue };
                let bytes = size.strip_suffix('m')?.parse::<u64>().ok()? << 20;
                control(zone, limit, Some(&bytes.to_string()))?;
            }
        }
        "add capped-cpu" | "select capped-cpu" => {
            let percent = value("ncpus")?.parse::<f64>().ok()? * 100.0;
            control(zone, "cpu-cap", Some(&percent.to_string()))?;
        }
        _ => {
            if let Some(name) = statement.strip_prefix("select attr name=") {
                zone.set_value("attr", name, Some(value("value")?));
                return Some(());
            }
            let mac = statement.strip_prefix("select net mac-addr=")?;
            let nic = zone
                .children
                .iter_mut()
                .find(|child| same("network", child.get("mac-addr"), mac))?;
            for inner in of {
                match (property(inner, "add property"), property(inner, "remove -F property")) {
                    (Some((name, value)), _) => nic.set_value("net-attr", name, Some(value)),
                    (None, Some((name, _))) => nic.set_value("net-attr", name, None),
                    (None, None) => return None,
                }
            }
        }
    }
    Some(())
}

/// Sets or removes a resource control.
fn control(zone: &mut Element, name: &str, limit: Option<&str>) -> Option<()> {
    const CONTROLS: [&str; 12] = [
        "cpu-shares",
        "zfs-io-priority",
        "max-lwps",
        "max-msg-ids",
        "max-sem-ids",
        "max-shm-ids",
        "max-shm-memory",
        "max-physical-memory",
        "max-locked-memory",
        "max-swap",
        "cpu-cap",
        "max-processes",
    ];
    let name = CONTROLS.iter().find(|known| **known == name).map(|name| format!("zone.{name}"))?;
    zone.children.retain(|child| child.name != "rctl" || child.get("name") != Some(&name));
    if let Some(limit) = limit {
        let mut rctl = Element::new("rctl", &[("name", &name)]);
        rctl.children.push(Element::new("rctl-value", &[("limit", limit)]));
        zone.children.push(rctl);
    }
    Some(())
}

/// A configuration as lines that can be compared: the order of what is in it says nothing.
pub(super) fn lines(zone: &Element) -> Vec<String> {
    let mut lines = Vec::new();
    for key in ["name", "zonepath", "autoboot", "brand", "ip-type", "limitpriv", "fs-allowed"] {
        lines.extend(zone.get(key).map(|value| format!("{key}={value}")));
    }
    lines.extend(zone.children.iter().map(line));
    lines.sort();
    lines
}

fn line(element: &Element) -> String {
    let shown = |key: &str, value: &str| match key {
        "mac-addr" => format!("{key}={}", short(value)),
        _ => format!("{key}={value}"),
    };
    // The recording says nothing of the form of a resource control.
    let of = element.attrs.iter().filter(|(key, _)| {
        !matches!(key.as_str(), "type" | "priv" | "action") || element.name == "filesystem"
    });
    let mut parts: Vec<String> = of.map(|(key, value)| shown(key, value)).collect();
    parts.sort();
    let mut children: Vec<String> = element.children.iter().map(line).collect();
    children.sort();
    format!("{} {} [{}]", element.name, parts.join(" "), children.join(", "))
}
