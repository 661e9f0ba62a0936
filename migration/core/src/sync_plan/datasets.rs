// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The datasets of a VM that are sent.

/// What has to be known of a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vm {
    /// The dataset of the zone's root.
    pub zfs_filesystem: String,
    /// Where the disks are.
    pub disks: Disks,
    pub is_docker: bool,
    /// A docker VM whose shared volumes are below `ROOT/volumes`.
    pub has_shared_volumes: bool,
    /// The delegated dataset.
    pub delegated: Option<String>,
}

/// Where the disks of a VM are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Disks {
    #[default]
    None,
    /// Children of the root (bhyve).
    Below,
    /// Volumes beside the root (kvm).
    Beside(Vec<String>),
}

/// How a dataset is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// With all that is below it and its properties; a clone stays one, so the receiver must have the
    /// snapshot that it was made of.
    Replicate,
    /// Alone, with its properties, and whole: the image layers of docker differ from node to node.
    Props,
    /// One snapshot of one dataset, without properties: what is encrypted is sent in no other way.
    Plain,
}

/// A dataset that is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its name, the same on both nodes.
    pub dataset: String,
    /// How it is sent.
    pub mode: Mode,
}

/// Returns the datasets of a VM that are sent, sorted by name. What is below a replicated one goes with it.
pub fn sent(vm: &Vm) -> Vec<Sent> {
    let root = &vm.zfs_filesystem;
    let mode = if vm.is_docker { Mode::Props } else { Mode::Replicate };
    let mut all = vec![Sent { dataset: root.clone(), mode }];
    let mut others: Vec<String> = vm.delegated.clone().into_iter().collect();
    if let Disks::Beside(disks) = &vm.disks {
        others.extend(disks.iter().cloned());
    }
    if vm.has_shared_volumes {
        others.push(format!("{root}/volumes"));
    }
    others.sort();
    for dataset in others {
        let is_covered = all.iter().any(|it| {
            it.dataset == dataset || it.mode == Mode::Replicate && is_below(&dataset, &it.dataset)
        });
        if !is_covered {
            all.push(Sent { dataset, mode: Mode::Replicate });
        }
    }
    all.sort_by(|a, b| a.dataset.cmp(&b.dataset));
    all
}

pub fn is_below(dataset: &str, parent: &str) -> bool {
    dataset.strip_prefix(parent).is_some_and(|rest| rest.starts_with('/'))
}
