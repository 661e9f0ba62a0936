// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The table of the paths that this service answers itself.

use sdc_clients::migrations::{Ended, Evacuation, Migration, Signs, Verification};
use sdc_clients::restify::{Endpoint, Endpoints, Shape, Slashes};
use sdc_clients::schema::Schemas;
use serde_json::Value;

/// What a request is about.
#[derive(Clone, Copy, Debug)]
pub enum Route {
    Migrations,
    Migration,
    Watch,
    Verify,
    Signs,
    Adopt,
    OfJobs,
    Jobs,
    JobsOfVm,
    Job,
    Evacuations,
    Evacuation,
    Settings,
    SettingsOfCn,
    Document,
}

impl Route {
    /// Returns the parameters of a path that the deployed VMAPI does not have.
    pub(super) fn known(self) -> Option<&'static [&'static str]> {
        match self {
            Route::Verify | Route::Settings | Route::SettingsOfCn | Route::Document => Some(&[]),
            _ => None,
        }
    }
}

/// Returns the document of these paths.
pub fn document() -> Value {
    let schemas = Schemas::default().with::<Migration>().with::<Ended>().with::<Evacuation>();
    let schemas = schemas.with::<Verification>().with::<Signs>().all();
    ENDPOINTS.openapi("migration-service", env!("CARGO_PKG_VERSION"), schemas)
}

/// By what a list is filtered; `format=raw` has all fields of a record, `format=history` lists what has ended
/// ([`Ended`]) by VM, node, owner and time.
const LIST: &[&str] = &[
    "state",
    "vm_uuid",
    "owner_uuid",
    "source_server_uuid",
    "target_server_uuid",
    "cn_uuid",
    "since",
    "limit",
    "format",
];

/// All paths. With another method, and with any other path, a request goes to VMAPI.
pub const ENDPOINTS: Endpoints<Route> = Endpoints {
    all: &[
        Endpoint::new("/migrations", "GET", Route::Migrations)
            .about("lists migrations, by any of their fields; with format=history what has ended (Ended)")
            .shapes(&[Shape::get(LIST, "[Migration]")]),
        Endpoint::new("/migrations/{uuid}", "GET, DELETE", Route::Migration)
            .about("the migration of a VM; removes its record, the last resort")
            .shapes(&[Shape::get(&["format"], "Migration")]),
        Endpoint::new("/migrations/{uuid}/watch", "GET", Route::Watch)
            .about("the progress of a migration, a line of JSON for each step of it"),
        Endpoint::new("/migrations/{uuid}/verify", "GET", Route::Verify)
            .about("compares the source of a migrated VM with its target")
            .shapes(&[Shape::get(&[], "Verification")]),
        Endpoint::new("/migrations/{uuid}/signs", "GET", Route::Signs)
            .about("the last signs of life of both nodes, before one is declared dead")
            .shapes(&[Shape::get(&[], "Signs")]),
        Endpoint::new("/migrations/{uuid}/adopt", "POST", Route::Adopt)
            .about("403: an operator asks this at the service's unix socket, or with a certificate"),
        Endpoint::new("/migrations/{uuid}/store", "POST", Route::OfJobs)
            .about("403: only migration-service writes the records of migrations"),
        Endpoint::new("/migrations/{uuid}/progress", "POST", Route::OfJobs)
            .about("403: only migration-service writes the progress of migrations"),
        Endpoint::new("/migrations/{uuid}/updateVmServerUuid", "POST", Route::OfJobs)
            .about("403: a VM is moved by its migration alone"),
        Endpoint::new("/jobs", "GET", Route::Jobs)
            .about("the operations of migrations, before VMAPI's jobs"),
        Endpoint::new("/vms/{uuid}/jobs", "GET", Route::JobsOfVm)
            .about("those of a VM, before VMAPI's jobs of it"),
        Endpoint::new("/jobs/{uuid}", "GET", Route::Job)
            .about("an operation in the form of the workflow API; a job that is none is VMAPI's"),
        Endpoint::new("/evacuations", "GET", Route::Evacuations)
            .about("the evacuations of nodes that are under way")
            .shapes(&[Shape::get(&[], "[Evacuation]")]),
        Endpoint::new("/evacuations/{cn}", "GET, PUT, DELETE", Route::Evacuation)
            .about("the evacuation of a node; begins or changes it; ends it")
            .shapes(&[Shape::get(&[], "Evacuation")]),
        Endpoint::new("/settings", "GET, PUT", Route::Settings)
            .about("the settings of the data centre; changes them"),
        Endpoint::new("/settings/{cn}", "GET, PUT", Route::SettingsOfCn)
            .about("the settings of a node; changes them"),
        Endpoint::new("/openapi.json", "GET", Route::Document).about("this document"),
    ],
    slashes: Slashes::Kept,
};
