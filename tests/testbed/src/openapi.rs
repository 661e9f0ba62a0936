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
use sdc_clients::agent_status::AgentStatus;
use sdc_clients::restify::openapi;
use sdc_clients::schema::Schemas;
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
            let schemas = Schemas::default().with::<AgentStatus>().all();
            Some(ENDPOINTS.openapi("agents", env!("CARGO_PKG_VERSION"), schemas))
        }
        "kvmd" => {
            let schemas = Schemas::default().with::<kvmd::http::Status>().all();
            Some(kvmd::http::document(schemas))
        }
        "migration-agent" => {
            let (version, schemas) = (env!("CARGO_PKG_VERSION"), Schemas::default().all());
            Some(openapi(name, version, migration_agent::routes::paths(), schemas))
        }
        "trust" => Some(migration_service::operators::document()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

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
