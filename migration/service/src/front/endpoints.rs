// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The table of the paths that this service answers itself.

use sdc_clients::migrations::{Ended, Evacuation, Migration, Signs, Verification};
use sdc_clients::restify::{Endpoint, Endpoints, Slashes, openapi};
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
    let schemas = schemas.with::<Verification>().with::<Signs>();
    let schemas = schemas
        .fields(
            "MigrateAction",
            &[
                "migration_action! begin|sync|switch|pause|abort|rollback|finalize|estimate|rescue|schedule|unschedule",
                "migration_automatic boolean",
                "override_server_uuid uuid",
                "affinity any",
                "owner_uuid uuid",
                "scheduled_timestamp string",
                "bwlimit integer",
                "max_downtime integer",
                "force boolean",
                "source_dead uuid",
                "target_dead uuid",
                "discard boolean",
                "really boolean",
            ],
        )
        .fields("MigrateAnswer", &["vm_uuid uuid", "job_uuid uuid", "migration object", "warnings [any]"])
        .fields(
            "Job",
            &[
                "uuid! uuid",
                "name string",
                "execution queued|running|succeeded|failed|canceled",
                "params object",
                "chain_results [object]",
                "created_at any",
                "started any",
                "elapsed number",
            ],
        )
        .fields("EvacuationChange", &["paused boolean", "to uuid", "at_once integer", "excluded [uuid]"])
        .fields(
            "Settings",
            &[
                "allow_user_migrations boolean",
                "max_running_migrations_per_cn integer",
                "zfs_send_mbps_limit integer?",
                "max_attempts integer",
                "schedule_leeway integer",
                "auto_finalize_after integer?",
                "max_paused integer?",
                "dead_after integer",
            ],
        );
    let mut paths = ENDPOINTS.paths();
    paths.extend(ACTIONS.paths());
    openapi("migration-service", env!("CARGO_PKG_VERSION"), paths, schemas.all())
}

/// What of VMAPI's own paths it answers itself.
const ACTIONS: Endpoints<()> = Endpoints {
    all: &[Endpoint::new("/vms/{uuid}", "POST", ())
        .about("with action=migrate: an action of the VM's migration; any other action is VMAPI's")
        .does(&["POST ?action!&sync MigrateAction -> 200|202 MigrateAnswer"])],
    slashes: Slashes::Kept,
};

/// All paths. With another method, and with any other path, a request goes to VMAPI.
pub const ENDPOINTS: Endpoints<Route> = Endpoints {
    all: &[
        Endpoint::new("/migrations", "GET", Route::Migrations)
            .about("lists migrations, by any of their fields; with format=history what has ended (Ended)")
            .does(&["GET ?state&vm_uuid&owner_uuid&source_server_uuid&target_server_uuid&cn_uuid&since&limit&format -> 200 [Migration]"]),
        Endpoint::new("/migrations/{uuid}", "GET, DELETE", Route::Migration)
            .about("the migration of a VM")
            .does(&["GET ?format -> 200 Migration", "DELETE -> 200: removes its record, the last resort"]),
        Endpoint::new("/migrations/{uuid}/watch", "GET", Route::Watch)
            .about("the progress of a migration, a line of JSON for each step of it")
            .does(&["GET -> 200 lines Progress"]),
        Endpoint::new("/migrations/{uuid}/verify", "GET", Route::Verify)
            .about("compares the source of a migrated VM with its target")
            .does(&["GET -> 200 Verification"]),
        Endpoint::new("/migrations/{uuid}/signs", "GET", Route::Signs)
            .about("the last signs of life of both nodes, before one is declared dead")
            .does(&["GET -> 200 Signs"]),
        Endpoint::new("/migrations/{uuid}/adopt", "POST", Route::Adopt)
            .about("403: an operator asks this at the service's unix socket, or with a certificate")
            .does(&["POST -> 403 Refusal"]),
        Endpoint::new("/migrations/{uuid}/store", "POST", Route::OfJobs)
            .about("403: only migration-service writes the records of migrations")
            .does(&["POST -> 403 Refusal"]),
        Endpoint::new("/migrations/{uuid}/progress", "POST", Route::OfJobs)
            .about("403: only migration-service writes the progress of migrations")
            .does(&["POST -> 403 Refusal"]),
        Endpoint::new("/migrations/{uuid}/updateVmServerUuid", "POST", Route::OfJobs)
            .about("403: a VM is moved by its migration alone")
            .does(&["POST -> 403 Refusal"]),
        Endpoint::new("/jobs", "GET", Route::Jobs)
            .about("the operations of migrations, before VMAPI's jobs")
            .does(&["GET ?vm_uuid&task&execution&limit&offset -> 200 [Job]"]),
        Endpoint::new("/vms/{uuid}/jobs", "GET", Route::JobsOfVm)
            .about("those of a VM, before VMAPI's jobs of it")
            .does(&["GET ?task&execution&limit&offset -> 200 [Job]"]),
        Endpoint::new("/jobs/{uuid}", "GET", Route::Job)
            .about("an operation in the form of the workflow API; a job that is none is VMAPI's")
            .does(&["GET -> 200 Job"]),
        Endpoint::new("/evacuations", "GET", Route::Evacuations)
            .about("the evacuations of nodes that are under way")
            .does(&["GET -> 200 [Evacuation]"]),
        Endpoint::new("/evacuations/{cn}", "GET, PUT, DELETE", Route::Evacuation)
            .about("the evacuation of a node")
            .does(&[
                "GET -> 200 Evacuation",
                "PUT EvacuationChange? -> 200 Evacuation: begins it, or changes what is named of it",
                "DELETE -> 200: ends it",
            ]),
        Endpoint::new("/settings", "GET, PUT", Route::Settings)
            .about("the settings of the data centre")
            .does(&["GET -> 200 Settings", "PUT Settings -> 200 Settings: changes those that are named"]),
        Endpoint::new("/settings/{cn}", "GET, PUT", Route::SettingsOfCn)
            .about("the settings of a node")
            .does(&["GET -> 200 Settings", "PUT Settings -> 200 Settings: changes those that are named"]),
        Endpoint::new("/openapi.json", "GET", Route::Document).about("this document").does(&["GET -> 200 {}"]),
    ],
    slashes: Slashes::Kept,
};
