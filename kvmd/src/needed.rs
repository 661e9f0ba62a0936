// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Whether the daemon is wanted on this node (K2). Checked at the start and at every rescan; if it is
//! not, the daemon ends with success.

use std::path::{Path, PathBuf};

/// The settings that decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The operator's switch.
    pub enabled: bool,
    /// Hypervisors in use, separated by commas or blanks.
    pub hypervisors: String,
    /// The cluster wants users' shutdowns detected (`enabled_user_shutdown`).
    pub user_shutdown: bool,
    /// This node runs VMs.
    pub vm_capable: bool,
    /// The directory of Ganeti's own values of the last three, which win.
    pub ssconf: Option<PathBuf>,
}

impl Need {
    /// Returns why it is not needed; `None` if it is.
    pub fn missing(&self) -> Option<&'static str> {
        let ssconf = |key: &str| self.ssconf.as_deref().and_then(|dir| read(dir, key));
        let hypervisors = ssconf("hypervisor_list").unwrap_or_else(|| self.hypervisors.clone());
        let wanted =
            ssconf("enabled_user_shutdown").map_or(self.user_shutdown, |text| is_true(&text));
        let capable = ssconf("node_vm_capable").map_or(self.vm_capable, |text| is_capable(&text));
        if !self.enabled {
            Some("it is disabled")
        } else if !hypervisors.split([',', ' ', '\n', '\t']).any(|name| name.trim() == "kvm") {
            Some("KVM is not among the hypervisors")
        } else if !wanted {
            Some("the detection of users' shutdowns is off")
        } else if !capable {
            Some("this node is not vm-capable")
        } else {
            None
        }
    }
}

fn read(dir: &Path, key: &str) -> Option<String> {
    std::fs::read_to_string(dir.join(format!("ssconf_{key}"))).ok()
}

fn is_true(text: &str) -> bool {
    text.trim().eq_ignore_ascii_case("true")
}

/// Reads `NODE=True` lines; a node that is not listed is capable.
fn is_capable(text: &str) -> bool {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_string_lossy().into_owned();
    let short = name.split('.').next().unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once('='))
        .find(|(node, _)| {
            let node = node.trim();
            node == name || node.split('.').next() == Some(short)
        })
        .is_none_or(|(_, value)| is_true(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need() -> Need {
        Need {
            enabled: true,
            hypervisors: "xen-pvm, kvm".to_owned(),
            user_shutdown: true,
            vm_capable: true,
            ssconf: None,
        }
    }

    #[test]
    fn each_condition_can_end_it() {
        assert_eq!(need().missing(), None);
        for without in [
            Need { enabled: false, ..need() },
            Need { hypervisors: "xen-pvm,kvm2".to_owned(), ..need() },
            Need { user_shutdown: false, ..need() },
            Need { vm_capable: false, ..need() },
        ] {
            assert!(without.missing().is_some(), "{without:?}");
        }
    }

    #[test]
    fn the_clusters_own_files_decide_where_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let need = Need { ssconf: Some(dir.path().to_owned()), ..need() };
        assert_eq!(need.missing(), None);
        let write = |key: &str, text: &str| {
            std::fs::write(dir.path().join(format!("ssconf_{key}")), text).unwrap();
        };
        write("hypervisor_list", "xen-pvm\nkvm\n");
        write("enabled_user_shutdown", "False\n");
        assert!(need.missing().is_some());
        write("enabled_user_shutdown", "True\n");
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        write("node_vm_capable", &format!("other=True\n{name}=False\n"));
        assert!(need.missing().is_some());
        write("node_vm_capable", &format!("other=False\n{name}=True\n"));
        assert_eq!(need.missing(), None);
    }
}
