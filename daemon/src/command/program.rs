// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The programs of a node: their names, and where they are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::config::Fields;

/// A program of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Program {
    /// zoneadm(8)
    Zoneadm,
    /// zonecfg(8)
    Zonecfg,
    /// zfs(8)
    Zfs,
    /// zpool(8)
    Zpool,
    /// vmadm(8)
    Vmadm,
    /// net-agent's command line.
    NetAgent,
    /// Prints the zone_misc kstats as JSON.
    Kstat,
    /// Prints sysevents as JSON lines.
    Sysevent,
    /// Watches the files that it is asked to, and prints their changes as JSON lines.
    Fswatcher,
    /// svcs(1)
    Svcs,
    /// svcadm(8)
    Svcadm,
    /// svccfg(8)
    Svccfg,
    /// mount(8)
    Mount,
    /// umount(8)
    Umount,
    /// uname(1)
    Uname,
    /// vminfod's command line.
    Vminfod,
    /// svcprop(1)
    Svcprop,
    /// zlogin(1)
    Zlogin,
    /// Triton's updates, on a headnode.
    Sdcadm,
    /// Runs a command on a node, from a headnode.
    SdcOneachnode,
}

impl Program {
    /// The name of the program, and where a node has it.
    const fn known(self) -> (&'static str, &'static str) {
        match self {
            Program::Zoneadm => ("zoneadm", "/usr/sbin/zoneadm"),
            Program::Zonecfg => ("zonecfg", "/usr/sbin/zonecfg"),
            Program::Zfs => ("zfs", "/usr/sbin/zfs"),
            Program::Zpool => ("zpool", "/usr/sbin/zpool"),
            Program::Vmadm => ("vmadm", "/usr/sbin/vmadm"),
            Program::NetAgent => ("net-agent", "/opt/smartdc/agents/bin/net-agent"),
            Program::Kstat => ("kstat", "/usr/vm/sbin/zone-kstats"),
            Program::Sysevent => ("sysevent", "/usr/sbin/sysevent"),
            Program::Fswatcher => ("fswatcher", "/usr/vm/sbin/fswatcher"),
            Program::Svcs => ("svcs", "/usr/bin/svcs"),
            Program::Svcadm => ("svcadm", "/usr/sbin/svcadm"),
            Program::Svccfg => ("svccfg", "/usr/sbin/svccfg"),
            Program::Mount => ("mount", "/usr/sbin/mount"),
            Program::Umount => ("umount", "/usr/sbin/umount"),
            Program::Uname => ("uname", "/usr/bin/uname"),
            Program::Vminfod => ("vminfod", "/usr/vm/sbin/vminfod"),
            Program::Svcprop => ("svcprop", "/usr/bin/svcprop"),
            Program::Zlogin => ("zlogin", "/usr/sbin/zlogin"),
            Program::Sdcadm => ("sdcadm", "/opt/smartdc/bin/sdcadm"),
            Program::SdcOneachnode => ("sdc-oneachnode", "/opt/smartdc/bin/sdc-oneachnode"),
        }
    }

    /// The name of the program.
    pub fn name(self) -> &'static str {
        self.known().0
    }
}

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The paths of the programs: each where a node has it, unless it is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paths(BTreeMap<Program, PathBuf>);

impl Paths {
    /// Reads the paths of these programs, `commands.NAME`, from a configuration.
    pub fn read(fields: &mut Fields, programs: &[Program]) -> Self {
        let path = |program: &Program| {
            let (name, default) = program.known();
            let key = format!("commands.{}", name.replace('-', "_"));
            (*program, fields.path(&key, default))
        };
        Paths(programs.iter().map(path).collect())
    }

    /// With this program at another path.
    #[must_use]
    pub fn with(mut self, program: Program, path: impl Into<PathBuf>) -> Self {
        self.0.insert(program, path.into());
        self
    }

    /// The path of a program.
    pub fn of(&self, program: Program) -> &Path {
        self.0.get(&program).map_or_else(|| Path::new(program.known().1), PathBuf::as_path)
    }
}
