// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed openapi NAME`: the interface of a service as OpenAPI has it, made of the table from which its router is.
//!
//! `docs/NAME.openapi.json` is what it prints; a test holds them equal. vminfod's is written by hand, since its
//! parameters and schemas are no part of a table; `vminfod/tests/all/openapi.rs` holds that one to the program.

use std::ffi::OsString;
use std::process::ExitCode;

use daemon::agent::ENDPOINTS;
use migration_core::protocol::{
    Accepted, Clear, Datasets, Doing, Looked, Node, Observe, Offer, Open, Order, Rate, Received,
    Rest, Size,
};
use sdc_clients::agent_status::AgentStatus;
use sdc_clients::restify::openapi;
use sdc_clients::schema::Schemas;
use sdc_clients::snapshots::{RolledBack, Snapshot};
use serde_json::Value;

use crate::arguments::command;

/// The services whose interface is a table.
const SERVICES: [&str; 6] =
    ["migration-service", "volapi", "agents", "kvmd", "migration-agent", "trust"];

#[derive(Debug, clap::Parser)]
#[command(name = "testbed openapi", about = "The interface of a service as OpenAPI has it")]
struct Options {
    /// migration-service, volapi, agents (the ports of all agents on their nodes), kvmd, migration-agent (what
    /// migration-service, volapi and other agents ask of it), or trust (what agents and operators ask of
    /// migration-service)
    name: String,
}

/// Runs the command with these arguments.
pub fn run(args: &[OsString]) -> ExitCode {
    command("testbed openapi", args, async |options: Options| {
        let document = document(&options.name);
        let document = document.ok_or_else(|| anyhow::anyhow!("known are {SERVICES:?}"))?;
        println!("{document:#}");
        Ok(true)
    })
}

/// Returns the document of a service.
fn document(name: &str) -> Option<Value> {
    match name {
        "migration-service" => Some(migration_service::front::document()),
        "volapi" => Some(volapi::http::document()),
        "agents" => {
            let schemas = Schemas::default()
                .with::<AgentStatus>()
                .fields("Approval", &["id! string", "by string"])
                .fields("Claim", &["node uuid", "by string", "really boolean"])
                .fields("Release", &["vm! uuid"]);
            Some(ENDPOINTS.openapi("agents", env!("CARGO_PKG_VERSION"), schemas.all()))
        }
        "kvmd" => {
            let schemas = Schemas::default().with::<kvmd::http::Status>().all();
            Some(kvmd::http::document(schemas))
        }
        "migration-agent" => {
            let schemas = Schemas::default()
                .with::<Observe>()
                .with::<Looked>()
                .with::<Order>()
                .with::<Doing>()
                .with::<Node>()
                .with::<Open>()
                .with::<Rest>()
                .with::<Size>()
                .with::<Datasets>()
                .with::<Rate>()
                .with::<Received>()
                .with::<Clear>()
                .with::<Offer>()
                .with::<Accepted>()
                .with::<Snapshot>()
                .with::<RolledBack>();
            let version = env!("CARGO_PKG_VERSION");
            Some(openapi(name, version, migration_agent::routes::paths(), schemas.all()))
        }
        "trust" => Some(migration_service::operators::document()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What is written without a body: all is in its path.
    const NO_BODY: [&str; 8] = [
        "post_migrations_uuid_adopt",
        "post_migrations_uuid_progress",
        "post_migrations_uuid_store",
        "post_migrations_uuid_updatevmserveruuid",
        "post_trust_init",
        "post_trust_news",
        "post_vms_uuid_snapshots_name_rollback",
        "put_vms_uuid_snapshots_name",
    ];

    /// Lists the names of the schemas that a document refers to.
    fn referred(document: &Value, found: &mut BTreeSet<String>) {
        match document {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|it| referred(it, found));
            }
            Value::Array(items) => items.iter().for_each(|it| referred(it, found)),
            _ => {}
        }
    }

    #[test]
    fn each_operation_has_an_id_an_answer_that_is_no_refusal_and_a_body_where_it_writes() {
        let mut without_body = BTreeSet::new();
        for name in SERVICES.into_iter().chain(["vminfod"]) {
            let path = format!("{}/../../docs/{name}.openapi.json", env!("CARGO_MANIFEST_DIR"));
            let all: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
            let mut ids = BTreeSet::new();
            for (path, item) in all["paths"].as_object().unwrap() {
                for (method, operation) in item.as_object().unwrap() {
                    let what = format!("{name}: {method} {path}");
                    let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
                    let is_plain =
                        |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
                    assert!(id.starts_with(method) && id.bytes().all(is_plain), "{what}: {id}");
                    let is_done = |status: &String| status.starts_with('2') || status == "403";
                    let answers = operation["responses"].as_object().unwrap();
                    assert!(answers.keys().any(is_done), "{what}: only refusals");
                    if ["put", "post"].contains(&method.as_str())
                        && operation["requestBody"].is_null()
                    {
                        without_body.insert(id.clone());
                    }
                    assert!(ids.insert(id), "{what}: twice");
                }
            }
            let mut found = BTreeSet::new();
            referred(&all, &mut found);
            for path in found {
                assert!(all.pointer(path.trim_start_matches('#')).is_some(), "{name}: no {path}");
            }
        }
        // At its port a plan is read; at its socket it is offered: there is nothing to say.
        without_body.remove("post_plan");
        assert_eq!(without_body, NO_BODY.into_iter().map(str::to_owned).collect());
    }

    #[test]
    fn the_files_are_what_the_tables_say() {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let names = std::fs::read_dir(&docs).unwrap().filter_map(|file| {
            let name = file.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".openapi.json").map(str::to_owned)
        });
        let made = SERVICES.into_iter().chain(["vminfod"]).map(str::to_owned);
        assert_eq!(names.collect::<BTreeSet<_>>(), made.collect(), "documents of no program");
        for name in SERVICES {
            let made = format!("{:#}\n", document(name).unwrap());
            let file = std::fs::read_to_string(docs.join(format!("{name}.openapi.json")));
            assert!(
                file.unwrap() == made,
                "run: testbed openapi {name} > docs/{name}.openapi.json"
            );
        }
    }
}
