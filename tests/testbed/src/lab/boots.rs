// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node of the lab loses its power and boots: what SMF starts then runs again, in its order, and nothing else.

use std::time::Duration;

use simnode::life::boot::Boot;
use simnode::life::ramdisk::SITE;

use super::error::LabError;
use super::smf;
use super::world::World;
use crate::process;

/// SMF ends the start method of migration-agent after this.
const METHOD: Duration = Duration::from_secs(120);

/// The programs that a boot starts.
fn booted() -> &'static [(&'static str, &'static str, &'static str)] {
    smf::PROGRAMS.split_at(4).0
}

impl World {
    /// Puts the manifest of each agent that runs where a boot imports it, as its package does.
    pub fn install_agents(&self) -> Result<(), LabError> {
        for (name, _, manifest) in booted() {
            if !manifest.is_empty() && self.pid(name).is_some() {
                self.node().put(&format!("{SITE}/{name}.xml"), manifest.as_bytes(), 0o444)?;
            }
        }
        Ok(())
    }

    /// Removes it again: no boot starts this agent any more.
    pub fn uninstall_agent(&self, name: &str) -> Result<(), LabError> {
        let file = self.node().path(&format!("{SITE}/{name}.xml"));
        std::fs::remove_file(&file).map_err(LabError::io(format!("removing {}", file.display())))
    }

    /// The node loses its power, with all that runs on it.
    pub async fn goes_down(&mut self) -> Result<(), LabError> {
        for (name, ..) in booted() {
            self.end(name, true).await?;
        }
        Ok(self.node().lose_power()?)
    }

    /// The node boots; returns what it started. The daemons among it run when this returns.
    pub async fn comes_up(&mut self) -> Result<Boot, LabError> {
        let mut boot = self.node().begin_boot()?;
        let mut started = Vec::new();
        while let Some(start) = self.node().next_start(&mut boot)? {
            if let Some((name, ..)) = booted().iter().find(|it| it.1 == start.service) {
                if *name == "migration-agent" {
                    self.before_zones().await?;
                }
                started.push(*name);
            }
            self.node().ended(&start, true)?;
        }
        // Each answers only when vminfod does.
        for (name, ..) in booted().iter().filter(|(name, ..)| started.contains(name)) {
            match *name {
                "vminfod" => self.start_vminfod().await?,
                "migration-agent" => self.start_migration_agent().await?,
                "net-agent" => self.start_agent().await?,
                _ => self.start_vm_agent().await?,
            }
        }
        Ok(boot)
    }

    /// What the start method of migration-agent does before the zones boot.
    async fn before_zones(&mut self) -> Result<(), LabError> {
        let options = self.options();
        let config = options.dir.join("migration-agent.json");
        if !config.exists() {
            return Ok(());
        }
        let args = ["@migration-agent", "boot", "--config", &config.to_string_lossy()];
        let done = process::run(&options.program, &args, METHOD).await;
        done.map(drop).map_err(LabError::io("running migration-agent boot"))
    }
}
