// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node: where the kit lies, what it has written, which mounts are laid, and what SMF and vminfod say.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use daemon::Fields;
use daemon::command::{Call, Commands, Paths, Program, Spawned};
use daemon::disk;
use serde_json::json;
use tokio::time::sleep;

use super::next::{Known, StaysAway, stays_away};

/// vminfod's configuration, in a kept place.
pub const CONFIG: &str = "/opt/smartdc/agents/etc/vminfod.config.json";
/// What the kit remembers, in a kept place.
const STATE: &str = "/var/db/hub";
/// Where a package of an agent lies; a kit that lies elsewhere is that of a node without Triton.
const PACKAGES: &str = "/opt/smartdc/agents/lib/node_modules";
/// The service that lays the mounts at each boot.
const SERVICE: &str = "svc:/system/smartdc/hub-node:default";
/// What of the kit is seen in which place of the platform; the method goes last, and comes off first.
const LAID: [(&str, &str); 2] =
    [("bin/vminfod", "/usr/vm/sbin/vminfod"), ("smf/system-vminfod", "/usr/vm/smf/system-vminfod")];
const PROGRAMS: [Program; 9] = [
    Program::Mount,
    Program::Umount,
    Program::Svcs,
    Program::Svcadm,
    Program::Svccfg,
    Program::Uname,
    Program::Zoneadm,
    Program::Vmadm,
    Program::Vminfod,
];
/// A command of the node takes no longer.
const COMMAND: Duration = Duration::from_secs(60);
/// The start of vminfod, which SMF ends after 300 s.
const START: Duration = Duration::from_secs(330);
/// A VM that comes or goes meanwhile is looked at again, so often and after so long.
const LOOKS: usize = 3;
const PAUSE: Duration = Duration::from_secs(2);
/// What is remembered is small.
const MOST: usize = 64 * 1024;

/// A node, and the kit on it.
pub struct Site {
    root: PathBuf,
    kit: String,
    commands: Arc<dyn Commands>,
}

impl Site {
    /// The node that this program runs on, and the kit that it lies in, unless a file says otherwise.
    pub fn of(config: Option<&Path>) -> anyhow::Result<Site> {
        let mut fields = match config {
            Some(file) => Fields::load(file)?,
            None => Fields::empty(),
        };
        let own = std::env::current_exe().and_then(|own| own.canonicalize());
        let own = own.context("cannot tell where this program lies")?;
        let folder = own.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        let root = fields.path("root", "/");
        let kit = fields.text("kit", &folder.to_string_lossy());
        let paths = Paths::read(&mut fields, &PROGRAMS);
        fields.finish()?;
        let own = root.join(kit.trim_start_matches('/')).join("bin/vminfod");
        let commands = Arc::new(Spawned::new(paths.with(Program::Vminfod, own)));
        Ok(Site { root, kit, commands })
    }

    /// Where the kit lies.
    pub fn kit(&self) -> &str {
        &self.kit
    }

    fn file(&self, place: &str) -> PathBuf {
        self.root.join(place.trim_start_matches('/'))
    }

    fn of_kit(&self, name: &str) -> String {
        format!("{}/{name}", self.kit)
    }

    fn state(&self, name: &str) -> PathBuf {
        self.file(STATE).join(name)
    }

    /// The folder of manifests that is kept, and imported at each boot.
    fn manifest(&self) -> PathBuf {
        let folder = match self.kit.starts_with(PACKAGES) {
            true => "/opt/smartdc/agents/smf",
            false => "/opt/custom/smf",
        };
        self.file(folder).join("hub-node.xml")
    }

    /// Returns how the kit's folder is removed.
    pub fn way_to_remove(&self) -> String {
        match self.kit.starts_with(PACKAGES) {
            true => "/opt/smartdc/agents/bin/apm uninstall hub removes it".to_owned(),
            false => format!("rm -r {} removes it", self.kit),
        }
    }

    async fn run(
        &self,
        program: Program,
        args: &[&str],
        limit: Duration,
    ) -> anyhow::Result<String> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let asked = format!("{program} {}", args.join(" "));
        let output = self.commands.run(Call::new(program, args, limit)).await?;
        ensure!(
            output.status == 0,
            "{asked} failed with status {}: {}",
            output.status,
            output.complaint()
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns the platform image that runs.
    pub async fn platform(&self) -> anyhow::Result<String> {
        Ok(self.run(Program::Uname, &["-v"], COMMAND).await?.trim().to_owned())
    }

    /// Returns an error if the kit is not whole, or the platform has nothing that it can be mounted on.
    pub fn check_kit(&self) -> anyhow::Result<()> {
        let stat = |place: &str| {
            let file = self.file(place);
            fs::symlink_metadata(&file).with_context(|| format!("{place} is not there"))
        };
        for name in ["bin/vminfod", "bin/zone-kstats", "smf/system-vminfod", "smf/hub-node"] {
            let mode =
                stat(&self.of_kit(name)).context("the kit is not whole")?.permissions().mode();
            ensure!(
                mode & 0o111 != 0,
                "the kit is not whole: {}/{name} may not be executed",
                self.kit
            );
        }
        stat(&self.of_kit("smf/hub-node.xml.in")).context("the kit is not whole")?;
        for (_, on) in LAID {
            // A mount on a link would be one on the program that it leads to.
            ensure!(
                stat(on)?.is_file(),
                "{on} is no file, so that nothing can be mounted on it: the hub does not know this platform"
            );
        }
        Ok(())
    }

    /// Writes vminfod's configuration if there is none; one that names a program that is not there is an error.
    pub fn configure(&self) -> anyhow::Result<()> {
        let file = self.file(CONFIG);
        let kstats = self.of_kit("bin/zone-kstats");
        if !file.exists() {
            fs::create_dir_all(file.parent().unwrap_or(&file))?;
            let content = json!({"listen": "127.0.0.1:9090", "commands": {"kstat": kstats}});
            return disk::write_atomically(&file, &content, MOST)
                .with_context(|| format!("cannot write {}", file.display()));
        }
        let mut fields = Fields::load(&file)?;
        let named = Paths::read(&mut fields, &[Program::Kstat]).of(Program::Kstat).to_owned();
        let is_there = self.file(&named.to_string_lossy()).exists() || named.exists();
        ensure!(
            is_there,
            "{CONFIG} names {} for the kstats, which is not there: set commands.kstat to {kstats}",
            named.display()
        );
        Ok(())
    }

    /// Returns the places that something is mounted on.
    async fn mounted(&self) -> anyhow::Result<BTreeSet<String>> {
        let listed = self.run(Program::Mount, &["-p"], COMMAND).await?;
        let on = listed.lines().filter_map(|line| line.split_whitespace().nth(2));
        Ok(on.map(str::to_owned).collect())
    }

    /// Returns true if the hub's vminfod is in the place of the platform's.
    pub async fn is_laid(&self) -> anyhow::Result<bool> {
        let mounted = self.mounted().await?;
        Ok(LAID.iter().all(|(_, on)| mounted.contains(*on)))
    }

    /// Lays the mounts anew: what is mounted there may be an older kit.
    pub async fn lay(&self) -> anyhow::Result<()> {
        self.take_off().await?;
        for (name, on) in LAID {
            self.run(Program::Mount, &["-F", "lofs", &self.of_kit(name), on], COMMAND).await?;
        }
        Ok(())
    }

    /// Takes the mounts off. Returns true if there were any.
    pub async fn take_off(&self) -> anyhow::Result<bool> {
        let mounted = self.mounted().await?;
        let laid: Vec<&str> =
            LAID.iter().rev().map(|(_, on)| *on).filter(|on| mounted.contains(*on)).collect();
        for on in laid.iter().copied() {
            self.run(Program::Umount, &[on], COMMAND).await?;
        }
        Ok(!laid.is_empty())
    }

    /// Starts vminfod again; returns when it answers.
    pub async fn restart(&self) -> anyhow::Result<()> {
        self.run(Program::Svcadm, &["disable", "-st", "vminfod"], START).await?;
        self.run(Program::Svcadm, &["enable", "-st", "vminfod"], START).await?;
        Ok(())
    }

    /// Returns true if SMF has vminfod running.
    pub async fn is_online(&self) -> anyhow::Result<bool> {
        let state = self.run(Program::Svcs, &["-H", "-o", "state", "vminfod"], COMMAND).await?;
        Ok(state.trim() == "online")
    }

    /// Returns an error unless it is the hub's vminfod that answers.
    pub async fn answers(&self) -> anyhow::Result<()> {
        self.run(Program::Vminfod, &["status"], COMMAND).await.map(drop)
    }

    /// Returns an error unless the VMs are those that have a zone.
    pub async fn shows_every_vm(&self) -> anyhow::Result<()> {
        for look in 1..=LOOKS {
            let zones = self.run(Program::Zoneadm, &["list", "-p", "-c"], COMMAND).await?;
            let vms = self.run(Program::Vmadm, &["list", "-p", "-o", "uuid"], COMMAND).await?;
            let zones = zones.lines().filter(|row| row.split(':').nth(1) != Some("global"));
            let zones: BTreeSet<&str> = zones
                .filter_map(|row| row.split(':').nth(4))
                .filter(|uuid| !uuid.is_empty())
                .collect();
            let vms: BTreeSet<&str> = vms.split_whitespace().collect();
            if zones == vms {
                return Ok(());
            }
            if look == LOOKS {
                let (missing, extra) =
                    (zones.difference(&vms).count(), vms.difference(&zones).count());
                bail!(
                    "it shows {} VMs; {missing} zones are missing, and {extra} VMs have no zone",
                    vms.len()
                );
            }
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Remembers that it was seen to work on this platform image; that it once did not answer is forgotten.
    pub fn remember(&self, platform: &str) -> anyhow::Result<()> {
        let mut tried = self.known(true)?.tried;
        if !tried.iter().any(|it| it == platform) {
            tried.push(platform.to_owned());
        }
        replace(&self.state("platforms"), &(tried.join("\n") + "\n"))?;
        remove(&self.state("booting"))?;
        remove(&self.state("failed"))
    }

    /// Forgets what is remembered.
    pub fn forget(&self) -> anyhow::Result<()> {
        for name in ["platforms", "booting", "failed"] {
            remove(&self.state(name))?;
        }
        match fs::remove_dir(self.file(STATE)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {STATE}"))
            }
            _ => Ok(()),
        }
    }

    fn known(&self, is_enabled: bool) -> anyhow::Result<Known> {
        let text = |name: &str| read(&self.state(name));
        let tried = text("platforms")?.unwrap_or_default();
        Ok(Known {
            is_enabled,
            tried: tried.lines().map(str::to_owned).collect(),
            failed: text("failed")?.map(|it| it.trim().to_owned()),
            is_booting: text("booting")?.is_some(),
        })
    }

    /// Returns why a boot of this platform image starts the platform's vminfod, if it does.
    pub fn next(&self, platform: &str, is_enabled: bool) -> anyhow::Result<Option<StaysAway>> {
        Ok(stays_away(&self.known(is_enabled)?, platform))
    }

    /// Returns true if a boot imports the service that lays the mounts.
    pub fn has_manifest(&self) -> bool {
        self.manifest().exists()
    }

    /// Writes the manifest of that service. The next boot imports it; nothing changes before.
    pub fn write_manifest(&self) -> anyhow::Result<()> {
        let name = self.of_kit("smf/hub-node.xml.in");
        let text = read(&self.file(&name))?.with_context(|| format!("{name} is not there"))?;
        let folder = self.manifest();
        fs::create_dir_all(folder.parent().unwrap_or(&folder))?;
        replace(&self.manifest(), &text.replace("@@FOLDER@@", &self.kit))
    }

    /// Removes the manifest, and the service where this boot has imported it.
    pub async fn remove_manifest(&self) -> anyhow::Result<()> {
        remove(&self.manifest())?;
        // An update that was killed may have left its note that the manifest comes back.
        remove(&self.state("enabled"))?;
        let args = ["-H", "-o", "state", SERVICE].map(str::to_owned).to_vec();
        let known = self.commands.run(Call::new(Program::Svcs, args, COMMAND)).await?;
        if known.status == 0 {
            self.run(Program::Svccfg, &["delete", "-f", SERVICE], COMMAND).await?;
        }
        Ok(())
    }
}

/// Returns the text of a file; none if there is no such file.
fn read(file: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// Makes the text of a file this one, whole or not at all.
fn replace(file: &Path, text: &str) -> anyhow::Result<()> {
    let said = || format!("cannot write {}", file.display());
    fs::create_dir_all(file.parent().unwrap_or(file)).with_context(said)?;
    let new = file.with_extension("new");
    fs::write(&new, text).and_then(|()| fs::File::open(&new)?.sync_all()).with_context(said)?;
    fs::rename(&new, file).with_context(said)
}

fn remove(file: &Path) -> anyhow::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", file.display()))
        }
        _ => Ok(()),
    }
}
