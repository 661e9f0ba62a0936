// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The rules of zonecfg, zoneadm and the kernel for a zone. Each step is one change of the state,
//! with its sysevents, under the node's lock; illegal steps are refused.

use crate::clock;
use crate::error::NodeError;
use crate::files;
use crate::node::Node;
use crate::state::{Guard, Zone, ZoneKstat, ZoneLock, ZoneState, check_zonename};
use crate::sysevent::Sysevent;
use crate::xml::{self, Element};

/// How a halted zone's init ended, as `lastexited` has it.
pub const CLEAN_EXIT: i64 = -1;

fn refused(zonename: &str, why: &str) -> NodeError {
    NodeError::refused(format!("zone '{zonename}': {why}"))
}

impl Node {
    /// Runs one change under the lock.
    pub fn step<T>(
        &self,
        change: impl FnOnce(&Guard<'_>) -> Result<T, NodeError>,
    ) -> Result<T, NodeError> {
        let guard = self.lock()?;
        change(&guard)
    }

    /// Posts an event without a change of the node.
    pub fn announce(&self, event: &Sysevent) -> Result<(), NodeError> {
        self.step(|guard| guard.post(event))
    }

    /// A zone by name or UUID, or zoneadm's complaint.
    pub fn zone(&self, name: &str) -> Result<Zone, NodeError> {
        let zones = self.zones()?;
        zones.find(name).cloned().ok_or_else(|| NodeError::NoSuchZone(name.to_string()))
    }

    /// Sleeps for the time that a zone stays in one state.
    #[allow(clippy::disallowed_methods)] // the executables have no runtime, and hold no lock here
    fn linger(&self) {
        if !self.pace().is_zero() {
            std::thread::sleep(self.pace());
        }
    }

    /// Locks the zone and reads it.
    fn hold(&self, name: &str) -> Result<(ZoneLock, Zone), NodeError> {
        let zonename = self.zone(name)?.zonename;
        let lock = self.lock_zone(&zonename)?;
        Ok((lock, self.zone(&zonename)?))
    }

    /// Moves a zone to a state and posts its event.
    fn enter(
        &self,
        zonename: &str,
        change: impl FnOnce(&mut Zone),
        events: &[(&str, &str, &str)],
    ) -> Result<(), NodeError> {
        self.step(|guard| {
            let mut zones = self.zones()?;
            let zone = zones.zone_mut(zonename)?;
            let before = zone.zoneid;
            change(zone);
            let zoneid = zone.zoneid.or(before);
            guard.save_zones(&zones)?;
            for (by, old, new) in events {
                guard.post(&Sysevent::zone(
                    by,
                    zonename,
                    old,
                    new,
                    zoneid.filter(|_| *by == "kernel"),
                ))?;
            }
            Ok(())
        })
    }

    /// zonecfg: a new zone with its configuration.
    pub fn zone_configure(&self, zone: &Zone, xml: &Element) -> Result<(), NodeError> {
        check_zonename(&zone.zonename)?;
        self.step(|guard| {
            let mut zones = self.zones()?;
            if zones.find(&zone.zonename).is_some() || zones.find(&zone.uuid).is_some() {
                return Err(NodeError::refused(format!(
                    "{}: zone already configured",
                    zone.zonename
                )));
            }
            files::replace(&self.zone_xml(&zone.zonename), xml.document().as_bytes())?;
            zones.insert(Zone { made_by: self.maker().to_owned(), ..zone.clone() });
            guard.save_zones(&zones)?;
            guard.post(&Sysevent::zone("zonecfg", &zone.zonename, "", "configured", None))
        })
    }

    /// The configuration of a zone.
    pub fn zone_config(&self, zonename: &str) -> Result<Element, NodeError> {
        let file = self.zone_xml(zonename);
        let text = std::fs::read_to_string(&file).map_err(|e| NodeError::io("read", &file, e))?;
        xml::parse(&text).map_err(|reason| NodeError::malformed(&file, reason))
    }

    /// zonecfg: changes the configuration of a zone. An unchanged one is not written.
    pub fn zone_reconfigure<T>(
        &self,
        zonename: &str,
        change: impl FnOnce(&mut Element) -> Result<T, NodeError>,
    ) -> Result<T, NodeError> {
        self.step(|guard| {
            let before = self.zone_config(zonename)?;
            let mut after = before.clone();
            let result = change(&mut after)?;
            if after != before {
                files::replace(&self.zone_xml(zonename), after.document().as_bytes())?;
                guard.post(&Sysevent::zone(
                    "zonecfg",
                    zonename,
                    "configured",
                    "configured",
                    None,
                ))?;
            }
            Ok(result)
        })
    }

    /// zoneadm install: `datasets` makes the file systems while the zone is incomplete.
    pub fn zone_install(
        &self,
        name: &str,
        datasets: impl FnOnce(&Zone) -> Result<(), NodeError>,
    ) -> Result<(), NodeError> {
        let (_lock, zone) = self.hold(name)?;
        let z = zone.zonename.as_str();
        if zone.state != ZoneState::Configured {
            return Err(refused(z, "must be configured before install."));
        }
        self.enter(
            z,
            |zone| zone.state = ZoneState::Incomplete,
            &[("zoneadm", "configured", "incomplete")],
        )?;
        datasets(&zone)?;
        self.linger();
        self.enter(
            z,
            |zone| zone.state = ZoneState::Installed,
            &[("zoneadm", "incomplete", "installed")],
        )
    }

    pub fn zone_boot(&self, name: &str) -> Result<(), NodeError> {
        let (_lock, zone) = self.hold(name)?;
        match zone.state {
            ZoneState::Installed => self.start(&zone.zonename),
            ZoneState::Configured | ZoneState::Incomplete => {
                Err(refused(&zone.zonename, "must be installed before boot."))
            }
            _ => Err(refused(&zone.zonename, "zone is already booted")),
        }
    }

    fn start(&self, zonename: &str) -> Result<(), NodeError> {
        self.step(|guard| {
            let mut zones = self.zones()?;
            let zoneid = zones.take_zoneid();
            let zone = zones.zone_mut(zonename)?;
            zone.state = ZoneState::Ready;
            zone.zoneid = Some(zoneid);
            zone.kstat =
                Some(ZoneKstat { instance: zoneid, init_pid: 0, init_restarts: 0, boot_time: 0 });
            guard.save_zones(&zones)?;
            for (old, new) in
                [("uninitialized", "initialized"), ("initialized", "ready"), ("ready", "ready")]
            {
                guard.post(&Sysevent::zone("kernel", zonename, old, new, Some(zoneid)))?;
            }
            Ok(())
        })?;
        self.linger();
        self.step(|guard| {
            let mut zones = self.zones()?;
            let init_pid = zones.take_pid();
            let zone = zones.zone_mut(zonename)?;
            zone.state = ZoneState::Running;
            let zoneid = zone.zoneid;
            let instance = zoneid.unwrap_or_default();
            zone.kstat = Some(ZoneKstat {
                instance,
                init_pid,
                init_restarts: 0,
                boot_time: files::now_seconds(),
            });
            guard.save_zones(&zones)?;
            guard.post(&Sysevent::zone("kernel", zonename, "ready", "running", zoneid))
        })
    }

    fn stop(&self, zonename: &str) -> Result<(), NodeError> {
        let down = ("kernel", "shutting_down", "shutting_down");
        let first = ("kernel", "running", "shutting_down");
        self.enter(
            zonename,
            |zone| zone.state = ZoneState::ShuttingDown,
            &[first, down, down, down],
        )?;
        self.linger();
        let leave = |zone: &mut Zone| {
            zone.state = ZoneState::Down;
            zone.kstat = None;
        };
        self.enter(zonename, leave, &[("kernel", "shutting_down", "uninitialized")])
    }

    /// zoneadm halt: init ended with this wait status.
    pub fn zone_halt(&self, name: &str, status: i64) -> Result<(), NodeError> {
        let (_lock, zone) = self.hold(name)?;
        let z = zone.zonename.as_str();
        if !zone.state.is_active() {
            return Err(refused(z, "zone is not running"));
        }
        self.stop(z)?;
        let now = clock::now();
        let exited = format!("{}.{:09} {status}\n", now.as_second(), now.subsec_nanosecond());
        let zonepath = self.path(&zone.zonepath);
        if zonepath.is_dir() {
            files::write_in_place(&zonepath.join("lastexited"), exited.as_bytes())?;
        }
        let leave = |zone: &mut Zone| {
            zone.state = ZoneState::Installed;
            zone.zoneid = None;
        };
        self.enter(z, leave, &[("kernel", "uninitialized", "free")])
    }

    pub fn zone_reboot(&self, name: &str) -> Result<(), NodeError> {
        let (_lock, zone) = self.hold(name)?;
        if zone.state != ZoneState::Running {
            return Err(refused(&zone.zonename, "zone is not running"));
        }
        self.stop(&zone.zonename)?;
        self.linger();
        self.start(&zone.zonename)
    }

    /// The kernel restarts the init of a running zone, as when a bhyve guest reboots itself.
    pub fn zone_restart_init(&self, name: &str) -> Result<(), NodeError> {
        let (_lock, zone) = self.hold(name)?;
        self.step(|guard| {
            let mut zones = self.zones()?;
            let pid = zones.take_pid();
            let zone = zones.zone_mut(&zone.zonename)?;
            let Some(kstat) = zone.kstat.as_mut().filter(|_| zone.state == ZoneState::Running)
            else {
                return Err(refused(&zone.zonename, "zone is not running"));
            };
            kstat.init_pid = pid;
            kstat.init_restarts += 1;
            let event = Sysevent::init_restart(&zone.zonename, zone.zoneid, kstat.init_restarts);
            guard.save_zones(&zones)?;
            guard.post(&event)
        })
    }

    /// zoneadm uninstall: destroys the datasets of the zone, with their files.
    pub fn zone_uninstall(&self, name: &str) -> Result<(), NodeError> {
        let (_lock, zone) = self.hold(name)?;
        let z = zone.zonename.as_str();
        if !matches!(zone.state, ZoneState::Installed | ZoneState::Incomplete) {
            return Err(refused(z, "must be installed before uninstall."));
        }
        let old = zone.state.as_str();
        self.enter(
            z,
            |zone| zone.state = ZoneState::Incomplete,
            &[("zoneadm", old, "incomplete")],
        )?;
        let top = zone.zonepath.trim_start_matches('/').to_string();
        let disks = format!("{top}-disk");
        let cores = format!("zones/cores/{z}");
        let names: Vec<String> = self.datasets()?.sorted().iter().map(|d| d.name.clone()).collect();
        let volumes = names.iter().filter(|n| n.starts_with(&disks) && !n.contains('@'));
        for name in volumes.chain(names.iter().filter(|n| **n == cores || **n == top)) {
            self.zfs(|all| all.destroy(name, true))?;
        }
        files::remove_tree(&self.path(&zone.zonepath))?;
        self.linger();
        self.enter(
            z,
            |zone| zone.state = ZoneState::Configured,
            &[("zoneadm", "incomplete", "configured")],
        )
    }

    /// zonecfg delete: removes the configuration and the line of the index.
    pub fn zone_deconfigure(&self, name: &str) -> Result<(), NodeError> {
        let (_lock, zone) = self.hold(name)?;
        let z = zone.zonename.as_str();
        if zone.state != ZoneState::Configured {
            return Err(NodeError::refused(format!(
                "Zone {z} not in configured state; delete not allowed."
            )));
        }
        self.step(|guard| {
            let mut zones = self.zones()?;
            zones.remove(z);
            files::remove_file(&self.zone_xml(z))?;
            guard.save_zones(&zones)?;
            guard.post(&Sysevent::zone("zonecfg", z, "configured", "", None))
        })
    }
}
