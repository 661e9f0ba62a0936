// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The services: where they are, and the names of VMs as people type them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use daemon::cli::hosts::{self, Hosts, Unknown};
use daemon::cli::names::{self, Kind};
use daemon::cli::screen::visible;
use daemon::cli::services::{self, Place};
use daemon::config::environment;
use daemon::{ConfigError, Fields};
use sdc_clients::cnapi::Cnapi;
use sdc_clients::migrations::{Migration, Migrations};
use sdc_clients::uuid_value;
use sdc_clients::vmapi::{Vm, VmQuery, Vmapi};
use serde_json::{Value, json};

use super::args::{NAME, Proof, Reach};
use super::names::Names;
use super::operator::Way;

/// The installed configuration.
const INSTALLED: &str = "/opt/smartdc/agents/etc/sdc-migrate.config.json";

const OWNER: Kind = Kind { one: "owner of VMs", name: "name" };

const PLACES: [Place; 2] = [
    ("migration-service", "--url", "VMAPI_URL", "vmapi_url"),
    ("CNAPI", "--cnapi", "CNAPI_URL", "cnapi_url"),
];

#[derive(Debug)]
pub(super) struct Services {
    pub migrations: Migrations,
    pub vmapi: Vmapi,
    /// Between two polls of an evacuation, and of a command that waits for a flag.
    pub poll: Duration,
    cnapi: String,
    found: services::Services,
}

/// Where an operator's key and certificate are in his home; root's home on a node is in the ramdisk.
const OLD: &str = ".sdc-migrate";

/// Where they are on a node, and the folder that each node and no other machine has.
const KEPT: &str = "/opt/smartdc/hub/operator";
const NODE: &str = "/opt/smartdc";

/// Returns where the key and the certificate of an operator are: on a node where a boot leaves them, unless they are in
/// his home alone.
fn kept(old: &Path, kept: &Path, node: &Path) -> PathBuf {
    let is_old = old.is_dir() && !kept.is_dir();
    let of_a_node = node.is_dir() && !is_old;
    if of_a_node { kept.to_owned() } else { old.to_owned() }
}

/// The keys of its own in the configuration: the pause between two looks, and where the
/// service is for operators.
fn own(file: &mut Fields) -> (Duration, Way) {
    let (ms, day) = (Duration::from_millis(1), Duration::from_secs(86_400));
    let poll = file.span("poll", Duration::from_secs(5), ms..=day);
    let socket = file.path("control_socket", "/var/run/migration-service/control.sock");
    let _unused = file.get("state_dir"); // of earlier versions, which kept evacuations there
    let home = environment("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from);
    let dir = file.path("trust_dir", kept(&home.join(OLD), Path::new(KEPT), Path::new(NODE)));
    let url = file.optional_text("trust_url");
    (poll, Way { url, dir, socket })
}

/// Returns where the service is for operators.
pub(super) fn way(reach: &Reach, proof: &Proof) -> Result<Way, ConfigError> {
    let (flags, config) = ([&reach.url, &reach.cnapi], reach.config.as_deref());
    let (_, (_, way)) = services::Services::find(NAME, INSTALLED, config, &PLACES, &flags, own)?;
    let (url, dir) = (proof.trust_url.clone().or(way.url), proof.trust_dir.clone());
    Ok(Way { url, dir: dir.unwrap_or(way.dir), ..way })
}

impl Services {
    pub(super) fn find(reach: &Reach) -> anyhow::Result<Services> {
        let (flags, config) = ([&reach.url, &reach.cnapi], reach.config.as_deref());
        let (found, (poll, _)) =
            services::Services::find(NAME, INSTALLED, config, &PLACES, &flags, own)?;
        let http = found.client(found.url(0)?)?;
        Ok(Services {
            migrations: Migrations::new(http.clone()),
            vmapi: Vmapi::new(http),
            poll,
            cnapi: found.url(1).unwrap_or_default().to_owned(),
            found,
        })
    }

    /// Returns the client of CNAPI.
    pub(super) fn cnapi(&self) -> anyhow::Result<Cnapi> {
        Ok(Cnapi::new(self.found.client(self.found.url(1)?)?))
    }

    /// Finds a VM by what was typed: its uuid, its alias, or a beginning of its uuid that no other VM has.
    pub(super) async fn vm(&self, typed: &str) -> anyhow::Result<String> {
        if uuid::Uuid::try_parse(typed).is_ok() {
            return Ok(uuid_value(typed));
        }
        // VMAPI finds no beginnings of uuids: where it may be one, all are read.
        let is_beginning = typed.chars().all(|it| it.is_ascii_hexdigit() || it == '-');
        let query = VmQuery {
            state: Some("active".to_owned()),
            predicate: (!is_beginning).then(|| json!({ "eq": ["alias", typed] })),
            fields: ["uuid", "alias", "state"].map(str::to_owned).into(),
            ..VmQuery::default()
        };
        let vms = self.vmapi.list_vms(&query).await.context("the VMs by their names")?;
        // They may be active no more.
        let migrating = self.migrations.list(&Default::default()).await?;
        let mut known: Vec<(&str, &str)> =
            vms.iter().map(|vm| (vm.uuid.as_str(), alias(vm).unwrap_or_default())).collect();
        for one in &migrating {
            if !known.iter().any(|(uuid, _)| *uuid == one.vm_uuid) {
                known.push((&one.vm_uuid, ""));
            }
        }
        Ok(names::find(&known, typed)?)
    }
}

impl Services {
    /// Finds an owner by his uuid, or a beginning of it where he has VMs.
    pub(super) async fn owner(&self, typed: &str) -> anyhow::Result<String> {
        if uuid::Uuid::try_parse(typed).is_ok() {
            return Ok(uuid_value(typed));
        }
        let query =
            VmQuery { fields: ["owner_uuid"].map(str::to_owned).into(), ..VmQuery::default() };
        let vms = self.vmapi.list_vms(&query).await.context("the owners of VMs")?;
        let owners: BTreeSet<&str> = vms.iter().filter_map(|vm| vm.owner_uuid.as_deref()).collect();
        let known: Vec<(&str, &str)> = owners.iter().map(|owner| (*owner, "")).collect();
        Ok(names::find_kind(OWNER, &known, typed)?)
    }

    /// Finds a node by its uuid, a beginning of it, or its host name. Where CNAPI is not known, or does not answer, a
    /// uuid is taken as it is.
    /// Fails if there is no such node; the error names the nearest one.
    pub(super) async fn node(&self, typed: &str) -> anyhow::Result<String> {
        if self.cnapi.is_empty() {
            return Ok(hosts::whole(typed)?);
        }
        match hosts::node(&self.cnapi()?, typed).await {
            Ok(uuid) => Ok(uuid),
            Err(Unknown::Name(unknown)) => Err(unknown.into()),
            Err(Unknown::Cnapi(error)) => Err(error).context("CNAPI"),
        }
    }
}

impl Services {
    /// Returns the host names of the nodes by uuid; none where CNAPI is not known or does not answer: uuids do.
    pub(super) async fn hosts(&self) -> Hosts {
        let Ok(cnapi) = self.cnapi() else { return Hosts::default() };
        Hosts::read(&cnapi).await.unwrap_or_default()
    }
}

impl Services {
    /// Returns VMAPI's record of a VM that does not migrate.
    pub(super) async fn known(&self, vm: &str) -> Option<String> {
        let record = self.vmapi.record(vm).await.ok()?;
        let text = |key: &str| record.get(key).and_then(Value::as_str).unwrap_or_default();
        let (hosts, state) = (self.hosts().await, text("state"));
        let place = match text("server_uuid") {
            "" => String::new(),
            cn => format!(" on {}", visible(hosts.name(cn))),
        };
        let alias = Some(text("alias")).filter(|it| !it.is_empty()).unwrap_or(vm);
        Some(format!("{} does not migrate: it is {}{place}", visible(alias), visible(state)))
    }

    /// Returns the names of the VMs of these migrations, and of the nodes. What a service does not report has none.
    pub(super) async fn names(&self, of: &[Migration]) -> Names {
        self.names_of(of.iter().map(|one| one.vm_uuid.clone()).collect()).await
    }

    /// The same of VMs by uuid.
    pub(super) async fn names_of(&self, all: BTreeSet<String>) -> Names {
        let vms = names::Names::of_vmapi(&self.vmapi, all).await;
        Names { vms, hosts: self.hosts().await }
    }
}

impl Services {
    /// The same of one that CNAPI may have forgotten: a uuid is taken as it is.
    pub(super) async fn any_node(&self, typed: Option<&str>) -> anyhow::Result<Option<String>> {
        Ok(match typed.map(|typed| hosts::whole(typed).map_err(|_| typed)) {
            None => None,
            Some(Ok(uuid)) => Some(uuid),
            Some(Err(name)) => Some(self.node(name).await?),
        })
    }
}

/// Returns a VM's alias.
pub(super) fn alias(vm: &Vm) -> Option<&str> {
    vm.other.get("alias").and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Z13
    fn an_operators_key_is_where_a_boot_leaves_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        let found =
            || kept(&at("root/.sdc-migrate"), &at("opt/smartdc/hub/operator"), &at("opt/smartdc"));
        assert_eq!(found(), at("root/.sdc-migrate"), "another machine");
        std::fs::create_dir_all(at("opt/smartdc")).unwrap();
        assert_eq!(found(), at("opt/smartdc/hub/operator"), "a node");
        std::fs::create_dir_all(at("root/.sdc-migrate")).unwrap();
        assert_eq!(found(), at("root/.sdc-migrate"), "what is in the home is still read");
        std::fs::create_dir_all(at("opt/smartdc/hub/operator")).unwrap();
        assert_eq!(found(), at("opt/smartdc/hub/operator"), "joined anew");
    }
}
