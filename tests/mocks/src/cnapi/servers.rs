// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The table of nodes, and the choice of one for a VM. Pure.

use serde_json::{Map, Value};

use crate::restify::Params;

/// A record of a node: `uuid`, `sysinfo`, and what else a test wants to be told. What is absent does not
/// limit: `setup` (true), `reserved` (false), `status` (`running`), `unreserved_ram` and `unreserved_disk` (MiB).
pub(super) type Server = Map<String, Value>;

/// Returns the records that a list asks for, without their sysinfo unless that is wanted.
pub(super) fn listed<'a>(
    servers: impl Iterator<Item = &'a Server>,
    query: &Params,
) -> Result<Vec<Server>, &'static str> {
    let text = |name: &str| query.get(name).and_then(Value::as_str);
    let number = |name: &'static str, usual: usize| match text(name) {
        None => Ok(usual),
        Some(text) => text.parse().map_err(|_| name),
    };
    let (offset, limit) = (number("offset", 0)?, number("limit", 1000)?);
    let uuids: Option<Vec<&str>> = text("uuids").map(|uuids| uuids.split(',').collect());
    let extras = text("extras").unwrap_or_default();
    let is_asked_for = |server: &&Server| {
        uuids.as_ref().is_none_or(|uuids| uuids.contains(&word(server, "uuid")))
            && text("setup").is_none_or(|setup| (setup == "true") == flag(server, "setup", true))
    };
    let shown = servers.filter(is_asked_for).skip(offset).take(limit.min(1000));
    let mut shown: Vec<Server> = shown.cloned().collect();
    if !extras.split(',').any(|extra| matches!(extra, "sysinfo" | "all")) {
        shown.iter_mut().for_each(|server| drop(server.remove("sysinfo")));
    }
    Ok(shown)
}

/// Returns the node for a VM: of those that are up, fit and have its NIC tags the one with the most memory
/// left.
pub(super) fn allocate<'a>(
    servers: impl Iterator<Item = &'a Server>,
    order: &Params,
) -> Option<&'a Server> {
    let vm = order.get("vm").and_then(Value::as_object);
    let size = |names: &[&str]| {
        let values = names.iter().find_map(|name| vm?.get(*name)?.as_f64());
        values.unwrap_or(0.0)
    };
    let ram = size(&["max_physical_memory", "ram"]);
    // GiB in a payload, MiB in a record.
    let disk = size(&["quota"]) * 1024.0;
    let among = order.get("servers").and_then(Value::as_array);
    let room = |server: &Server, name: &str| {
        server.get(name).and_then(Value::as_f64).unwrap_or(f64::INFINITY)
    };
    let fits = |server: &&Server| {
        let uuid = server.get("uuid");
        among.is_none_or(|among| among.iter().any(|it| Some(it) == uuid))
            && flag(server, "setup", true)
            && !flag(server, "reserved", false)
            && matches!(word(server, "status"), "" | "running")
            && room(server, "unreserved_ram") >= ram
            && room(server, "unreserved_disk") >= disk
            && has_tags(server, order)
    };
    let by_room = |a: &&Server, b: &&Server| {
        room(a, "unreserved_ram")
            .total_cmp(&room(b, "unreserved_ram"))
            .then_with(|| word(b, "uuid").cmp(word(a, "uuid")))
    };
    servers.filter(fits).max_by(by_room)
}

/// Each NIC's list of tags needs one that the node has.
fn has_tags(server: &Server, order: &Params) -> bool {
    let tags = nic_tags(server);
    let lists = order.get("nic_tag_requirements").and_then(Value::as_array).into_iter().flatten();
    lists.filter_map(Value::as_array).all(|list| {
        list.is_empty() || list.iter().filter_map(Value::as_str).any(|tag| tags.contains(&tag))
    })
}

fn nic_tags(server: &Server) -> Vec<&str> {
    let kinds = ["Network Interfaces", "Virtual Network Interfaces"];
    let nics = kinds.into_iter().filter_map(|kind| server.get("sysinfo")?[kind].as_object());
    let lists = nics.flat_map(|nics| nics.values()).flat_map(|nic| {
        ["NIC Names", "Overlay Nic Tags"].into_iter().filter_map(|list| nic[list].as_array())
    });
    lists.flatten().filter_map(Value::as_str).collect()
}

fn word<'a>(server: &'a Server, name: &str) -> &'a str {
    server.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn flag(server: &Server, name: &str, usual: bool) -> bool {
    server.get(name).and_then(Value::as_bool).unwrap_or(usual)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn server(uuid: &str, more: &Value) -> Server {
        let mut server = Server::from_iter([("uuid".to_owned(), json!(uuid))]);
        server.extend(more.as_object().unwrap().clone());
        server
    }

    #[test]
    fn the_node_with_the_most_memory_left_of_those_that_fit() {
        let nic = |tags: Value| json!({ "Network Interfaces": { "n": { "NIC Names": tags } } });
        let servers = [
            server(
                "a",
                &json!({ "unreserved_ram": 2048, "unreserved_disk": 51200, "sysinfo": nic(json!(["admin"])) }),
            ),
            server(
                "b",
                &json!({ "unreserved_ram": 4096, "unreserved_disk": 1024, "sysinfo": nic(json!(["admin", "ext"])) }),
            ),
            server("c", &json!({ "unreserved_ram": 9999, "reserved": true })),
            server("d", &json!({ "unreserved_ram": 9999, "setup": false })),
            server("e", &json!({ "unreserved_ram": 9999, "status": "unknown" })),
        ];
        let choose = |order: Value| {
            let chosen = allocate(servers.iter(), order.as_object().unwrap());
            chosen.map(|it| it["uuid"].as_str().unwrap())
        };
        assert_eq!(choose(json!({ "vm": { "ram": 1024 } })), Some("b"));
        assert_eq!(choose(json!({ "vm": { "ram": 1024, "quota": 25 } })), Some("a"));
        assert_eq!(choose(json!({ "vm": {}, "servers": ["a"] })), Some("a"));
        assert_eq!(choose(json!({ "vm": {}, "nic_tag_requirements": [["x", "ext"]] })), Some("b"));
        assert_eq!(choose(json!({ "vm": {}, "nic_tag_requirements": [["admin"], ["x"]] })), None);
        assert_eq!(choose(json!({ "vm": { "ram": 8192 } })), None);
        let query = |text| crate::restify::from_query(text);
        let uuids = |text| -> Vec<Value> {
            let listed = listed(servers.iter(), &query(text)).unwrap();
            listed.into_iter().map(|it| it["uuid"].clone()).collect()
        };
        assert_eq!(uuids("setup=false"), ["d"]);
        assert_eq!(uuids("limit=2&offset=1"), ["b", "c"]);
        assert_eq!(uuids("uuids=e,a"), ["a", "e"]);
        let with = listed(servers.iter(), &query("extras=sysinfo")).unwrap();
        let without = listed(servers.iter(), &query("")).unwrap();
        assert!(with[0].contains_key("sysinfo") && !without[0].contains_key("sysinfo"));
        assert_eq!(listed(servers.iter(), &query("limit=x")), Err("limit"));
    }
}
