// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A data centre for what operators type: two nodes with everything, and volapi.

use std::path::{Path, PathBuf};

use testbed::lab::volumes::Volumes;
use testbed::lab::{World, WorldOptions, seed};
use testbed::moving::subject::VM;
use testbed::process::{self, Finished};

use super::{LATE, Lab, until};

/// The programs that people type there.
pub const PROGRAMS: [&str; 12] = [
    "vminfod",
    "net-agent",
    "vm-agent",
    "kvmd",
    "console",
    "migration-agent",
    "migration-service",
    "volapi",
    "sdc-migrate",
    "sdc-voladm",
    "sdc-volapi",
    "sdc-pkgadm",
];

/// The owner of the volumes.
pub const OWNER: &str = "644810da-6ce1-40a9-93db-c23dfb772fd2";

/// Types lines on the node of this directory; the first failure ends them.
pub async fn typed_on(node: &Path, lines: &str) -> Finished {
    let bin = node.join("bin");
    let script = format!("set -euo pipefail\nexport PATH={}:$PATH\n{lines}\n", bin.display());
    // A migration in one go has three phases, each of which may be late.
    let done = process::run(Path::new("/bin/bash"), &["-c", &script], 3 * LATE).await;
    done.unwrap_or_else(|error| panic!("{lines}: {error}"))
}

/// Starts two nodes with their agents but kvmd, one VM on the first, and migration-service.
pub async fn nodes(set: impl FnOnce(&mut WorldOptions)) -> (Lab, World) {
    let mut lab = Lab::start(|options| {
        (options.speed, options.vms) = (600, 1);
        set(options);
    })
    .await;
    let mut other = lab.beside(1).await.unwrap();
    other.start_vminfod().await.unwrap();
    for world in [&mut *lab, &mut other] {
        let vms = world.hub().unwrap().vms(true).await.unwrap().vms;
        seed::fill_right(world, &vms).unwrap();
        world.start_agent().await.unwrap();
        world.start_vm_agent().await.unwrap();
        world.start_migration_agent().await.unwrap();
    }
    lab.start_migration_service().await.unwrap();
    (lab, other)
}

/// Waits until VMAPI knows the VM that moves.
pub async fn provisioned(lab: &mut Lab) {
    lab.provision().await.unwrap();
    until("VMAPI knows the VM", async || {
        lab.vmapi.store().get(VM).is_some_and(|vm| vm["state"] == "running")
    })
    .await;
}

/// It, with the VM that moves on the first node.
pub struct Centre {
    pub lab: Lab,
    pub other: World,
    volumes: Volumes,
}

impl Centre {
    /// Starts everything but kvmd and the page.
    pub async fn start() -> Centre {
        Centre::with(|_| ()).await
    }

    /// The same with other options.
    pub async fn with(set: impl FnOnce(&mut WorldOptions)) -> Centre {
        let (mut lab, other) = nodes(|options| {
            options.vms = 2;
            set(options);
        })
        .await;
        let volumes = Volumes::start(&mut lab).await.unwrap();
        provisioned(&mut lab).await;
        Centre { lab, other, volumes }
    }

    /// Types lines; the first failure ends them.
    pub async fn typed(&self, lines: &str) -> Finished {
        typed_on(self.lab.node().dir(), lines).await
    }

    /// Types lines on the other node that end well.
    pub async fn there(&self, lines: &str) -> String {
        let bin = self.other.node().dir().join("bin");
        self.good(&format!("export PATH={}:$PATH\n{lines}", bin.display())).await
    }

    /// Types lines that end well.
    pub async fn good(&self, lines: &str) -> String {
        let done = self.typed(lines).await;
        assert_eq!(done.code, Some(0), "{lines}: {}{}", done.stdout, done.stderr);
        done.stdout
    }

    /// Types lines that fail.
    pub async fn bad(&self, lines: &str) -> String {
        let done = self.typed(lines).await;
        assert_eq!(done.code, Some(1), "{lines}: {}{}", done.stdout, done.stderr);
        done.stderr
    }

    /// Has a volume made, and returns its uuid once it is ready; one that is there is taken.
    pub async fn volume(&self, name: &str) -> String {
        let find = "sdc-voladm list-volume-zones -p -o name,state,volume";
        let ready = async || {
            let listed = self.good(find).await;
            let line = listed.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
            line.map(str::to_owned)
        };
        if ready().await.is_none() {
            let asked = serde_json::json!({"owner_uuid": OWNER, "type": "tritonnfs", "name": name,
                "networks": ["8036d58d-7821-4ae3-a752-15be1d92344c"]});
            self.good(&format!("sdc-volapi --bare -f /volumes -d '{asked}'")).await;
        }
        let is_made = |line: &String| !line.starts_with("creating:");
        until("the volume is made", async || ready().await.as_ref().is_some_and(is_made)).await;
        ready().await.unwrap().rsplit(':').next().unwrap().to_owned()
    }

    fn store(&self) -> PathBuf {
        self.lab.dir().join("cn/migration-service/store.redb")
    }

    /// Ends the service as SMF does, and copies its store.
    pub async fn stopped(&mut self, copy: &str) -> PathBuf {
        self.lab.end("migration-service", false).await.unwrap();
        let copy = self.lab.dir().join(copy);
        std::fs::copy(self.store(), &copy).unwrap();
        copy
    }

    /// The service has this store, which is older than what the agents heard.
    pub async fn restored(&mut self, store: &Path) {
        self.lab.end("migration-service", false).await.unwrap();
        std::fs::copy(store, self.store()).unwrap();
        self.lab.start_migration_service().await.unwrap();
    }

    pub async fn stop(self) {
        self.other.stop().await.unwrap();
        drop(self.volumes);
        self.lab.stop().await;
    }
}
