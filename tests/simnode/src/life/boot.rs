// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A boot, in the order of the platform: the ramdisk is made, SMF's repository is the image's, the manifests of the
//! kept places are imported, and then each enabled service starts when what it waits for runs.

use std::path::Path;

use serde_json::{Value, json};

use super::platform::{MANIFEST_IMPORT, VMADMD, ZONES};
use super::repository::{Named, Repository, fmri};
use crate::error::NodeError;
use crate::files;
use crate::node::Node;

/// The folders whose manifests are imported at a boot, in this order, and whether their subfolders are read.
const FOLDERS: [(&str, bool); 3] =
    [("/lib/svc/manifest", true), ("/var/svc/manifest", true), ("/opt/custom/smf", false)];
/// The profiles that are applied then, in this order.
const PROFILES: [&str; 4] = [
    "/etc/svc/profile/generic.xml",
    "/etc/svc/profile/platform.xml",
    "/etc/svc/profile/site.xml",
    "/var/svc/profile/site.xml",
];
/// A boot starts at most so many services.
const MANY: usize = 1000;

/// A service that the boot starts now; its method is the caller's to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    named: Named,
    /// Such as `svc:/smartdc/agent/net-agent:default`.
    pub fmri: String,
    /// Such as `smartdc/agent/net-agent`.
    pub service: String,
    /// The command line of its start method; empty if it has none.
    pub exec: String,
}

/// What a node did when it booted.
#[derive(Debug, Default)]
pub struct Boot {
    /// The manifests that were read, and those that SMF refused, with why.
    pub imported: Vec<String>,
    pub refused: Vec<(String, String)>,
    /// The instances that were started, in this order.
    pub started: Vec<String>,
    /// The zones that booted.
    pub zones: Vec<String>,
}

impl Node {
    /// The power is gone: the zones are down, and what is not in a kept place is lost.
    pub fn lose_power(&self) -> Result<(), NodeError> {
        let names: Vec<String> = self
            .zones()?
            .iter()
            .filter(|zone| zone.state.is_active())
            .map(|zone| zone.zonename.clone())
            .collect();
        for name in names {
            self.zone_halt(&name, 0)?;
        }
        Ok(())
    }

    /// Begins a boot: all is down, the ramdisk is new, and SMF knows the services of the image.
    pub fn begin_boot(&self) -> Result<Boot, NodeError> {
        self.lose_power()?;
        let sysinfo: Option<Value> = files::read_json(&self.path("/tmp/.sysinfo.json")).ok();
        self.lose_ramdisk()?;
        self.lay_places()?;
        if let Some(mut sysinfo) = sysinfo {
            sysinfo["Live Image"] = json!(self.info().platform);
            sysinfo["Boot Time"] = json!(files::now_seconds().to_string());
            files::write_json(&self.path("/tmp/.sysinfo.json"), &sysinfo)?;
        }
        self.forget_lofs()?;
        self.change_repository(|all| {
            *all = Repository::of_image();
            all.is_booting = true;
        })?;
        Ok(Boot::default())
    }

    /// Returns what is started next; none when the boot is over. What is enabled and waits for ever stays offline.
    pub fn next_start(&self, boot: &mut Boot) -> Result<Option<Start>, NodeError> {
        loop {
            let all = self.repository()?;
            let Some(named) = all.next().filter(|_| boot.started.len() < MANY) else {
                self.change_repository(|all| all.is_booting = false)?;
                return Ok(None);
            };
            boot.started.push(fmri(&named));
            match named.0.as_str() {
                MANIFEST_IMPORT => self.import_manifests(boot)?,
                ZONES => self.boot_zones(boot, false)?,
                VMADMD => self.boot_zones(boot, true)?,
                _ => {
                    let (fmri, service) = (fmri(&named), named.0.clone());
                    let properties = all.service(&service).map(|it| &it.described.properties);
                    let exec = properties.and_then(|it| it.get("start/exec")).cloned();
                    let exec = exec.unwrap_or_default();
                    return Ok(Some(Start { named, fmri, service, exec }));
                }
            }
            self.change_repository(|all| all.put_state(&named, "online"))?;
        }
    }

    /// The method has ended: the service runs, or is in maintenance. What it asked `svcadm` for stays.
    pub fn ended(&self, start: &Start, well: bool) -> Result<(), NodeError> {
        self.change_repository(|all| {
            let state = if well { "online" } else { "maintenance" };
            let waits = |all: &Repository| {
                all.instance(&start.named).is_some_and(|it| it.state == "offline")
            };
            if waits(all) {
                all.put_state(&start.named, state);
            }
        })
    }

    /// Boots the node; `runs` runs the method of a service, and returns whether it ended well.
    pub fn boot(
        &self,
        mut runs: impl FnMut(&Start) -> Result<bool, NodeError>,
    ) -> Result<Boot, NodeError> {
        let mut boot = self.begin_boot()?;
        while let Some(start) = self.next_start(&mut boot)? {
            let well = runs(&start)?;
            self.ended(&start, well)?;
        }
        Ok(boot)
    }

    /// The platform image of the next boot.
    pub fn assign_platform(&mut self, stamp: &str) -> Result<(), NodeError> {
        self.set_info(|info| stamp.clone_into(&mut info.platform))
    }

    fn import_manifests(&self, boot: &mut Boot) -> Result<(), NodeError> {
        for (folder, is_deep) in FOLDERS {
            for place in self.files_of(folder, is_deep)? {
                let text =
                    std::fs::read_to_string(self.path(&place)).map_err(|error| error.to_string());
                let done =
                    self.change_repository(|all| text.and_then(|it| all.import(&it, &place)))?;
                match done {
                    Ok(_) => boot.imported.push(place),
                    Err(why) => boot.refused.push((place, why)),
                }
            }
        }
        for place in PROFILES.iter().filter(|place| self.path(place).exists()) {
            let text = std::fs::read_to_string(self.path(place)).map_err(|error| error.to_string());
            let done = self.change_repository(|all| text.and_then(|it| all.apply(&it)))?;
            if let Err(why) = done {
                boot.refused.push(((*place).to_owned(), why));
            }
        }
        Ok(())
    }

    /// The manifests of a folder: those of its subfolders, `site` last, then its own.
    fn files_of(&self, folder: &str, is_deep: bool) -> Result<Vec<String>, NodeError> {
        let dir = self.path(folder);
        let Ok(entries) = std::fs::read_dir(&dir) else { return Ok(Vec::new()) };
        let mut names: Vec<String> =
            entries.flatten().map(|it| it.file_name().to_string_lossy().into_owned()).collect();
        names.sort_by_key(|name| (name == "site", name.clone()));
        let (folders, own): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|name| dir.join(name).is_dir());
        let mut found = Vec::new();
        for name in folders.iter().filter(|_| is_deep) {
            found.extend(self.files_of(&format!("{folder}/{name}"), true)?);
        }
        let own =
            own.iter().filter(|name| Path::new(name).extension().is_some_and(|it| it == "xml"));
        found.extend(own.map(|name| format!("{folder}/{name}")));
        Ok(found)
    }

    /// Boots the zones with autoboot: those of KVM, or the others.
    fn boot_zones(&self, boot: &mut Boot, of_kvm: bool) -> Result<(), NodeError> {
        let zones: Vec<(String, bool)> = {
            let zones = self.zones()?;
            zones.iter().map(|zone| (zone.zonename.clone(), zone.brand == "kvm")).collect()
        };
        for (name, is_kvm) in zones.into_iter().filter(|(_, is_kvm)| *is_kvm == of_kvm) {
            let config = self.zone_config(&name)?;
            let autoboot = match is_kvm {
                true => config.value("attr", "vm-autoboot"),
                false => config.get("autoboot"),
            };
            if autoboot == Some("true") {
                self.zone_boot(&name)?;
                boot.zones.push(name);
            }
        }
        Ok(())
    }
}
