// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The documents of the interfaces: a client that is generated from them creates a volume, reads it, a migration and a
//! VM.

mod operations;

use std::path::Path;

use testbed::moving::subject::VM;
use testbed::process;

use super::common::LATE;
use super::common::centre::{Centre, OWNER};

/// PyPI's openapi-python-client.
const GENERATOR: &str = "openapi-python-client";

/// What the client is asked to do; the addresses of the services follow it on the command line.
const STORY: &str = r#"
import sys, time
from volapi_client import Client as Volapi
from volapi_client.api.default import get_volumes_uuid, post_volumes
from volapi_client.models import NewVolume
from migration_service_client import Client as Migrations
from migration_service_client.api.default import get_migrations_uuid
from vminfod_client import Client as Vminfod
from vminfod_client.api.default import get_vms_name

_, volapi, migrations, vminfod, owner, vm = sys.argv
at = Volapi(base_url=volapi)
network = "8036d58d-7821-4ae3-a752-15be1d92344c"
wanted = NewVolume(owner_uuid=owner, name="generated", type_="tritonnfs", networks=[network])
made = post_volumes.sync(client=at, body=wanted)
end = time.monotonic() + 90
while get_volumes_uuid.sync(made.uuid, client=at).state != "ready":
    assert time.monotonic() < end, "the volume is not ready"
    time.sleep(0.1)
one = get_migrations_uuid.sync(vm, client=Migrations(base_url=migrations), format_="raw")
shown = get_vms_name.sync(vm, client=Vminfod(base_url=vminfod))
print("volume", made.name, "migration", one.phase, one.state, "vm", shown.state)
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // M146
#[ignore = "servers: `.ci/run` has it in its lane of programs"]
async fn a_generated_client_creates_a_volume_and_reads_a_migration_and_a_vm() {
    let ask = format!("command -v {GENERATOR}");
    let found = process::run(Path::new("/bin/sh"), &["-c", &ask], LATE).await.unwrap();
    if found.code != Some(0) {
        eprintln!("skipped: {GENERATOR} (PyPI) is not installed");
        return;
    }
    let centre = Centre::start().await;
    centre.good(&format!("sdc-migrate begin {VM}")).await;
    let dir = centre.lab.dir().join("clients");
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for name in ["volapi", "migration-service", "vminfod"] {
        let (document, place) = (docs.join(format!("{name}.openapi.json")), dir.join(name));
        // It formats nothing: a formatter need not be there.
        let config = dir.join(format!("{name}.json"));
        std::fs::create_dir_all(&dir).unwrap();
        let package = format!("{}_client", name.replace('-', "_"));
        std::fs::write(
            &config,
            format!(r#"{{"post_hooks": [], "package_name_override": "{package}"}}"#),
        )
        .unwrap();
        centre
            .good(&format!(
                "{GENERATOR} generate --path {} --output-path {} --config {} --meta none",
                document.display(),
                place.display(),
                config.display()
            ))
            .await;
        std::fs::rename(place, dir.join(package)).unwrap();
    }
    std::fs::write(dir.join("story.py"), STORY).unwrap();
    let [volapi, migrations, vminfod] =
        [centre.lab.volapi_url(), centre.lab.migrations_url(), centre.lab.vminfod_url()];
    // The interpreter of the generator has what the clients need.
    let python = format!("$(head -n 1 $(command -v {GENERATOR}) | cut -c 3-)");
    let line = format!(
        "cd {} && {python} story.py {volapi} {migrations} {vminfod} {OWNER} {VM}",
        dir.display()
    );
    let told = centre.good(&line).await;
    assert_eq!(told, "volume generated migration begin paused vm running\n");
    centre.stop().await;
}
