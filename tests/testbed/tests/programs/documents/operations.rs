// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Each operation of each document is asked of the program that has it, with the parameters and the body that the
//! document describes: its answer is one that the document has.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Client;
use serde_json::{Map, Value, json};
use testbed::moving::subject::VM;

use crate::common::centre::{Centre, OWNER};
use crate::common::until;

/// A uuid of nothing.
const NOBODY: &str = "11111111-2222-4333-8444-555555555555";
/// A network of the owner's.
const NETWORK: &str = "8036d58d-7821-4ae3-a752-15be1d92344c";

/// What is done, not refused, when it is asked as the document describes it: all others need something that is not there.
const DONE: [&str; 39] = [
    "agents: get_history",
    "agents: get_holds",
    "agents: get_metrics",
    "agents: get_openapi_json",
    "agents: get_ping",
    "agents: get_plan",
    "agents: get_status",
    "migration-service: get_evacuations",
    "migration-service: get_jobs",
    "migration-service: get_migrations",
    "migration-service: get_migrations_uuid",
    "migration-service: get_migrations_uuid_signs",
    "migration-service: get_migrations_uuid_verify",
    "migration-service: get_migrations_uuid_watch",
    "migration-service: get_openapi_json",
    "migration-service: get_settings",
    "migration-service: get_settings_cn",
    "migration-service: get_vms_uuid_jobs",
    "migration-service: post_vms_uuid",
    "migration-service: put_evacuations_cn",
    "migration-service: put_settings",
    "migration-service: put_settings_cn",
    "vminfod: get_events",
    "vminfod: get_ping",
    "vminfod: get_status",
    "vminfod: get_vms",
    "vminfod: get_vms_name",
    "volapi: get_openapi_json",
    "volapi: get_ping",
    "volapi: get_volumereservations",
    "volapi: get_volumes",
    "volapi: get_volumes_uuid",
    "volapi: get_volumes_uuid_references",
    "volapi: get_volumesizes",
    "volapi: post_volumereservations",
    "volapi: post_volumes",
    "volapi: post_volumes_uuid_addreference",
    "volapi: post_volumes_uuid_removereference",
    "volapi: post_volumes_uuid_snapshot",
];

/// What a document says, and the values that its parameters and bodies have here.
struct Document {
    all: Value,
    values: BTreeMap<&'static str, Value>,
}

impl Document {
    fn read(name: &str, values: &[(&'static str, &str)]) -> Document {
        let path = format!("{}/../../docs/{name}.openapi.json", env!("CARGO_MANIFEST_DIR"));
        let all = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let values = values.iter().map(|(name, value)| (*name, json!(value))).collect();
        Document { all, values }
    }

    fn resolved<'a>(&'a self, schema: &'a Value) -> &'a Value {
        match schema["$ref"].as_str() {
            Some(path) => self.all.pointer(path.trim_start_matches('#')).unwrap(),
            None => schema,
        }
    }

    /// Makes a value that fits a schema: of an object, what is needed and what has a value here.
    fn example(&self, name: &str, schema: &Value) -> Value {
        if let Some(value) = self.values.get(name) {
            return value.clone();
        }
        let schema = self.resolved(schema);
        if let Some(words) = schema["enum"].as_array() {
            return words[0].clone();
        }
        match schema["type"].as_str() {
            Some("object") => {
                let needed = schema["required"].as_array();
                let is_needed =
                    |name: &String| needed.is_some_and(|all| all.iter().any(|it| it == name));
                let fields = schema["properties"].as_object().into_iter().flatten();
                let wanted = fields
                    .filter(|(name, _)| is_needed(name) || self.values.contains_key(name.as_str()));
                let made = wanted.map(|(name, field)| (name.clone(), self.example(name, field)));
                Value::Object(made.collect())
            }
            Some("array") => json!([]),
            Some("boolean") => json!(false),
            Some("integer" | "number") => json!(10_240),
            _ if schema["format"] == "uuid" => json!(NOBODY),
            _ => json!("example"),
        }
    }

    /// Returns why a value is none of a schema.
    fn misfit(&self, schema: &Value, value: &Value) -> Option<String> {
        let schema = self.resolved(schema);
        for of in ["anyOf", "oneOf"] {
            if let Some(any) = schema[of].as_array() {
                let fits = any.iter().any(|one| self.misfit(one, value).is_none());
                return (!fits).then(|| format!("{value} fits none of {schema}"));
            }
        }
        let is_type = |kind: &str| match kind {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_u64() || value.is_i64(),
            "number" => value.is_number(),
            _ => value.is_null(),
        };
        let kinds = match &schema["type"] {
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            kind => kind.as_str().into_iter().collect::<Vec<_>>(),
        };
        if !kinds.is_empty() && !kinds.into_iter().any(is_type) {
            return Some(format!("{value} is none of {}", schema["type"]));
        }
        if schema["enum"].as_array().is_some_and(|words| !words.contains(value)) {
            return Some(format!("{value} is none of {}", schema["enum"]));
        }
        let lacks = schema["required"].as_array().into_iter().flatten();
        if let Some(name) = lacks.filter_map(Value::as_str).find(|name| value.get(name).is_none()) {
            return Some(format!("it lacks {name}"));
        }
        let fields = schema["properties"].as_object().into_iter().flatten();
        let fields = fields.filter_map(|(name, field)| Some((name, field, value.get(name)?)));
        let mut wrong = fields.filter_map(|(name, field, value)| {
            self.misfit(field, value).map(|why| format!("{name}: {why}"))
        });
        wrong.next().or_else(|| {
            let items = value.as_array().into_iter().flatten();
            schema.get("items").and_then(|item| items.filter_map(|it| self.misfit(item, it)).next())
        })
    }

    /// Asks an operation; returns why it was refused, if it was, or how the answer is none that it has.
    async fn ask(
        &self,
        client: &Client,
        url: &str,
        path: &str,
        method: &str,
    ) -> Result<Option<String>, String> {
        let operation = &self.all["paths"][path][method];
        let (mut path, mut query) = (path.to_owned(), Vec::new());
        for one in operation["parameters"].as_array().into_iter().flatten() {
            let name = one["name"].as_str().unwrap();
            let is_known = self.values.contains_key(name);
            let value = self.example(name, &one["schema"]);
            let value = value.as_str().unwrap().to_owned();
            match one["in"].as_str() {
                Some("path") => {
                    let part = path.split('/').find(|it| it.starts_with(&format!("{{{name}")));
                    path = path.replace(part.unwrap().to_owned().as_str(), &value);
                }
                _ if one["required"] == true || is_known && name == "owner_uuid" => {
                    query.push((name.to_owned(), value));
                }
                _ => {}
            }
        }
        let what = format!("{method} {path}");
        let method = method.to_uppercase().parse().unwrap();
        let mut request = client.request(method, format!("{url}{path}")).query(&query);
        let body = &operation["requestBody"]["content"]["application/json"]["schema"];
        if !body.is_null() {
            request = request.json(&self.example("", body));
        }
        let mut answer = request.send().await.unwrap();
        let status = answer.status();
        let told = &operation["responses"][status.as_str()];
        if told.is_null() && status.is_success() {
            return Err(format!("{what}: it has no {status}"));
        }
        let told = if told.is_null() { &operation["responses"]["default"] } else { told };
        let kinds = told["content"].as_object().cloned().unwrap_or_default();
        if kinds.contains_key("application/x-ndjson") {
            // The first line is enough: some of these have no end.
            let mut line = Vec::new();
            while !line.contains(&b'\n')
                && let Ok(Some(piece)) = answer.chunk().await
            {
                line.extend_from_slice(&piece);
            }
            let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let is_json = line.is_empty() || serde_json::from_slice::<Value>(line).is_ok();
            return if is_json { Ok(None) } else { Err(format!("{what}: no line of JSON")) };
        }
        let text = answer.text().await.unwrap();
        let misfit = match kinds.get("application/json") {
            Some(kind) => match serde_json::from_str(&text) {
                Ok(body) => self.misfit(&kind["schema"], &body),
                Err(why) => Some(format!("{why}: {text}")),
            },
            None if kinds.contains_key("text/plain") || text.is_empty() => None,
            None => Some(text.clone()),
        };
        match misfit {
            Some(why) => Err(format!("{what}: {status}: {why}")),
            None if status.is_success() => Ok(None),
            None => Ok(Some(format!("{what}: {status}: {text}"))),
        }
    }
}

/// Lists the operations of a document: the number of their steps, their path, method and id; what reads comes first, and
/// what removes last.
fn operations(document: &Value) -> Vec<(usize, String, String, String)> {
    let paths = document["paths"].as_object().unwrap().iter();
    let of = |(path, item): (&String, &Value)| -> Vec<(usize, String, String, String)> {
        let methods: &Map<String, Value> = item.as_object().unwrap();
        let of = methods.iter().map(|(method, it)| {
            let at = ["get", "post", "put", "delete"].iter().position(|one| one == method).unwrap();
            let id = it["operationId"].as_str().unwrap().to_owned();
            (at, path.clone(), method.clone(), id)
        });
        of.collect()
    };
    let mut all: Vec<_> = paths.flat_map(of).collect();
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "servers: `.ci/run` has it in its lane of programs"]
async fn each_operation_answers_as_its_document_says() {
    let centre = Centre::start().await;
    let client = Client::builder().timeout(Duration::from_secs(60)).build().unwrap();
    centre.good(&format!("sdc-migrate begin {VM}")).await;
    // A list that is shown again and again ends with its reader.
    let shown = centre.good("sdc-migrate list --watch | head -n 5").await;
    assert_eq!(shown.lines().filter(|line| line.starts_with("VM ")).count(), 2, "{shown}");
    let volapi = centre.lab.volapi_url();
    let wanted =
        json!({"owner_uuid": OWNER, "type": "tritonnfs", "networks": [NETWORK], "name": "asked"});
    let made = client.post(format!("{volapi}/volumes")).json(&wanted).send().await.unwrap();
    let made: Value = made.json().await.unwrap();
    let volume = made["uuid"].as_str().unwrap();
    until("the volume is ready", async || {
        let shown = client.get(format!("{volapi}/volumes/{volume}")).send().await.unwrap();
        shown.json::<Value>().await.unwrap()["state"] == "ready"
    })
    .await;
    let cn = centre.lab.node().cn_uuid().to_owned();
    let of_volume = [("uuid", volume), ("owner_uuid", OWNER), ("type", "tritonnfs")];
    let of_vm = [("uuid", VM), ("name", VM), ("action", "migrate"), ("migration_action", "sync")];
    let of_vm: Vec<_> = of_vm.into_iter().chain([("cn", cn.as_str())]).collect();
    let asked = [
        ("vminfod", centre.lab.vminfod_url(), &of_vm[..]),
        ("agents", centre.lab.agent_url(), &[][..]),
        ("volapi", volapi, &of_volume[..]),
        ("migration-service", centre.lab.migrations_url(), &of_vm[..]),
    ];
    let (mut done, mut refused, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    for (name, url, values) in asked {
        let mut document = Document::read(name, values);
        document.values.insert("networks", json!([NETWORK]));
        for (_, path, method, id) in operations(&document.all) {
            // A volume of another name is made.
            document
                .values
                .insert("name", if name == "volapi" { json!("made") } else { json!(VM) });
            match document.ask(&client, &url, &path, &method).await {
                Ok(None) => done.push(format!("{name}: {id}")),
                Ok(Some(why)) => refused.push(format!("{name}: {why}")),
                Err(why) => wrong.push(format!("{name}: {why}")),
            }
        }
    }
    let missing: Vec<&str> =
        DONE.into_iter().filter(|id| !done.iter().any(|it| it == id)).collect();
    assert!(
        missing.is_empty() && wrong.is_empty(),
        "{wrong:#?}\nnot done: {missing:#?}\nrefused: {refused:#?}"
    );
    centre.stop().await;
}
