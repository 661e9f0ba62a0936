// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! All obstacles to a begin, reported at once (RFD 34, R22–R24).

pub mod object; // what of a VM does not move

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use object::{Needs, Stays};

use crate::intent::End;
use crate::time::Time;
use crate::vm_agent::VmAgent;

/// What is known before a begin. `None` is "not known", which is an obstacle where it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct Situation {
    /// The VM's state in VMAPI.
    pub state: String,
    /// `tags.smartdc_type` is `core`.
    pub is_core: bool,
    /// `tags.smartdc_role` is `nat`: such a core VM may move.
    pub is_nat: bool,
    /// Devices passed through to the VM, as VMAPI has them.
    pub pci_devices: usize,
    /// The VM's object as its node shows it; none: its agent was not asked, or does not answer.
    pub object: Option<Map<String, Value>>,
    /// By VMAPI's record it is a guest whose first disk has no image.
    pub lacks_image: bool,
    /// The MACs of NICs that have no network or no address in NAPI.
    pub odd_nics: Vec<String>,
    /// What the datasets use, in bytes, with the sizes that they have now.
    pub used_bytes: u64,
    /// IMGAPI has the VM's image.
    pub has_image: bool,
    /// The node that the VM is on; none: nodes were not asked, or VMAPI names none.
    pub source: Option<Node>,
    /// The node that was named or chosen, if one was.
    pub target: Option<Node>,
}

/// What is known of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The version that migration-agent speaks; none: there is no agent, or it does not answer.
    pub agent_version: Option<u32>,
    /// The peer is not authenticated as the node's agent: another version, or a revoked or expired certificate.
    pub is_unproved: bool,
    /// The key of its agent was revoked.
    pub is_revoked: bool,
    /// By its sysinfo nobody knows where its agent listens.
    pub lacks_address: bool,
    /// The kind of CPU: vendor, and what guests see of it.
    pub cpu: Option<String>,
    /// The platform, such as `20260101T000000Z`.
    pub platform: Option<String>,
    /// How much its clock differs from the service's, in ms.
    pub clock_ms: Option<i64>,
    /// The pool has `extensible_dataset`, which resuming needs.
    pub can_resume: bool,
    /// The pool of its VMs; none: the agent does not report it.
    pub pool: Option<String>,
    /// The VM has a limit of filesystems or snapshots, and the pool has no such limits.
    pub lacks_limits: bool,
    /// The pool is encrypted, as far as the agent reports.
    pub encrypted: Option<bool>,
    /// Free space in the pool, in bytes.
    pub free_bytes: Option<u64>,
    /// NIC tags that the VM needs and the node lacks.
    pub missing_nic_tags: BTreeSet<String>,
    /// When the node is to be rebooted next.
    pub next_reboot: Option<Time>,
    /// Which vm-agent it has.
    pub vm_agent: VmAgent,
    /// It has a copy of the VM already: the rest of a failed migration, or another VM of this uuid.
    pub has_copy: bool,
    /// Datasets of the VM's name that it has though it has no copy.
    pub in_the_way: Vec<String>,
}

impl Node {
    /// Its agent answers. Without it, what only the agent reports is unknown, which needs no finding of its own.
    fn answers(&self) -> bool {
        self.agent_version.is_some()
    }
}

/// How much clocks may differ.
const MOST_CLOCK_MS: i64 = 60_000;

/// An obstacle to a begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// The deployed service's reply for a VM that is not provisioned.
    #[error("Cannot call migrate for a VM that has not been provisioned yet")]
    Unallocated,
    /// The deployed service begins to move a destroyed VM.
    #[error("Cannot migrate an instance in state {0}")]
    State(String),
    /// The deployed service's sentence.
    #[error("Cannot migrate a core instance")]
    Core,
    /// It cannot have the same device elsewhere.
    #[error("The instance has {0} PCI devices passed through")]
    PciDevices(usize),
    /// The target would not get it.
    #[error("The NIC {0} has no network or no address in NAPI")]
    Nic(String),
    /// Something of it does not move.
    #[error(transparent)]
    Stays(#[from] Stays),
    /// What an agent sends and receives lies in the pool of its node's VMs.
    #[error(
        "The {end}'s node keeps its instances in the pool {pool}, and the instance is in {own}"
    )]
    Pool { end: End, pool: String, own: String },
    /// No agent there sends or receives.
    #[error("migration-agent does not answer on the {0}'s node")]
    NoAgent(End),
    /// Its agent cannot be asked.
    #[error(
        "The sysinfo of the {0}'s node has no address on the admin network: \
         neither Admin IP nor a NIC with the tag that Admin NIC Tag names"
    )]
    NoAddress(End),
    /// The peer there is not authenticated.
    #[error(
        "The program on the {0}'s node cannot prove that it is migration-agent: its version differs, or its certificate is not valid"
    )]
    Unproved(End),
    /// An operator wants no VM there.
    #[error("The key of migration-agent on the {0}'s node was revoked")]
    Revoked(End),
    /// The agents would not understand each other.
    #[error(
        "migration-agent speaks version {source_version} on the source's node and {target_version} on the target's"
    )]
    Agents { source_version: u32, target_version: u32 },
    /// VMAPI would be told that the hidden copy is destroyed.
    #[error("vm-agent on the {end}'s node {why}", why = .vm_agent.against().unwrap_or_default())]
    VmAgent { end: End, vm_agent: VmAgent },
    /// Guests see the CPU.
    #[error("The target's CPU is of another kind: {target_cpu}, not {source_cpu}")]
    Cpu { source_cpu: String, target_cpu: String },
    /// A VM may rely on what its platform has.
    #[error("The target's platform {target_platform} is older than {source_platform}")]
    Platform { source_platform: String, target_platform: String },
    /// What has to be compared is not known.
    #[error("The {what} of the {end}'s node is not known")]
    Unknown { end: End, what: &'static str },
    /// The times in the VM would jump.
    #[error("The clock of the {end}'s node is {seconds} s off")]
    Clock {
        end: End,
        /// How much, to the next second.
        seconds: i64,
    },
    /// The target's disks would have what the source's must not have as plain text.
    #[error("The source's pool is encrypted, and the target's is not")]
    PlainTarget,
    /// The copy does not fit.
    #[error("The target's pool has {free} bytes free, and the instance uses {used}")]
    Room { free: u64, used: u64 },
    /// The target could not have the VM's NICs.
    #[error("The target's node lacks the NIC tags {0}")]
    NicTags(String),
    /// The streams set them.
    #[error(
        "The pool of the target's node has no limits of filesystems and snapshots, as the instance has"
    )]
    Limits,
    /// Removed by abort, by operators.
    #[error("The target's node has a copy of the instance already")]
    HasCopy,
    /// Somebody's: no migration takes their names, or destroys them.
    #[error("The target's node has {0}, which no migration has made: rename or destroy it there")]
    InTheWay(String),
    /// The node that was named is the one that the VM is on.
    #[error("The target's node is the source's")]
    SameNode,
}

/// A warning: begin goes on, and the operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// It is copied from the source's node.
    #[error("IMGAPI does not have the image: it is copied from the source's node")]
    NoImage,
    /// The copy is encrypted with the target's key.
    #[error("The target's pool is encrypted, and the source's is not: the copy will be encrypted")]
    EncryptedTarget,
    /// A stream that is cut starts from the last common snapshot.
    #[error("The pool of the {0}'s node cannot resume a stream that was cut")]
    NoResume(End),
    /// Both copies will be there until the reboot, and the migration waits for it.
    #[error("The {0}'s node is to be rebooted at {1}")]
    Reboot(End, Time),
    /// The operator begins whichever vm-agent is there.
    #[error(
        "forced: a restart of vm-agent on the {0}'s node may have VMAPI show the instance destroyed meanwhile"
    )]
    VmAgent(End),
    /// Something of it does not move, or needs something of the node.
    #[error(transparent)]
    Needs(#[from] Needs),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// With any of these there is no begin.
    pub obstacles: Vec<Obstacle>,
    /// With these there is.
    pub warnings: Vec<Warning>,
}

impl Findings {
    /// Takes what an operator may take upon himself for warnings. Returns whether there was anything.
    pub fn force(&mut self) -> bool {
        let before = self.obstacles.len();
        let warnings = &mut self.warnings;
        self.obstacles.retain(|obstacle| match obstacle {
            Obstacle::VmAgent { end, .. } => {
                warnings.push(Warning::VmAgent(*end));
                false
            }
            _ => true,
        });
        self.obstacles.len() < before
    }
}

impl Obstacle {
    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Obstacle::Unallocated => 409,
            Obstacle::NoAgent(_) => 503,
            _ => 412,
        }
    }

    /// Returns true if it passes by itself: a caller that is refused for nothing else may ask again.
    pub fn passes(&self) -> bool {
        matches!(self, Obstacle::NoAgent(_))
    }

    /// Returns the code of the body.
    pub fn code(&self) -> &'static str {
        match self {
            Obstacle::Unallocated => "UnallocatedVM",
            Obstacle::NoAgent(_) => "ServiceUnavailableError",
            _ => "PreconditionFailed",
        }
    }
}

/// Returns all obstacles to a begin at `now`.
pub fn check(known: &Situation, is_same_node: bool, now: Time) -> Findings {
    let mut found = Findings::default();
    of_vm(known, &mut found);
    if is_same_node {
        found.obstacles.push(Obstacle::SameNode);
    }
    let Some(source) = &known.source else { return found };
    of_node(End::Source, source, now, &mut found);
    if known.object.is_none() && source.answers() {
        found
            .obstacles
            .push(Obstacle::Unknown { end: End::Source, what: "object of the instance" });
    }
    let own = known.object.as_ref().and_then(|vm| crate::carried::text(vm, "zpool"));
    if let (Some(own), Some(pool)) = (own, &source.pool)
        && own != pool
    {
        let (pool, own) = (pool.clone(), own.to_owned());
        found.obstacles.push(Obstacle::Pool { end: End::Source, pool, own });
    }
    if let Some(target) = &known.target {
        of_node(End::Target, target, now, &mut found);
        of_pair(source, target, &mut found);
        of_target(known.used_bytes, target, &mut found);
    }
    found
}

/// Returns what was found of this target, which needs room for `used` bytes.
pub fn between(source: &Node, target: &Node, used: u64, now: Time) -> Findings {
    let mut found = Findings::default();
    of_node(End::Target, target, now, &mut found);
    of_pair(source, target, &mut found);
    of_target(used, target, &mut found);
    found
}

fn of_vm(known: &Situation, found: &mut Findings) {
    match known.state.as_str() {
        "running" | "stopped" | "stopping" => {}
        "provisioning" => found.obstacles.push(Obstacle::Unallocated),
        state => found.obstacles.push(Obstacle::State(state.to_owned())),
    }
    if known.is_core && !known.is_nat {
        found.obstacles.push(Obstacle::Core);
    }
    let devices = known.object.as_ref().map(|vm| crate::carried::entries(vm, "pci_devices").len());
    let devices = devices.unwrap_or(known.pci_devices);
    if devices > 0 {
        found.obstacles.push(Obstacle::PciDevices(devices));
    }
    if known.object.is_none() && known.lacks_image {
        found.obstacles.push(Stays::NoImage.into());
    }
    if let Some(vm) = &known.object {
        let (stays, needs) = object::check(vm);
        found.obstacles.extend(stays.into_iter().map(Obstacle::from));
        found.warnings.extend(needs.into_iter().map(Warning::from));
    }
    found.obstacles.extend(known.odd_nics.iter().cloned().map(Obstacle::Nic));
    if !known.has_image {
        found.warnings.push(Warning::NoImage);
    }
}

fn of_node(end: End, node: &Node, now: Time, found: &mut Findings) {
    match node.clock_ms {
        _ if node.is_revoked => found.obstacles.push(Obstacle::Revoked(end)),
        _ if node.lacks_address => found.obstacles.push(Obstacle::NoAddress(end)),
        _ if node.is_unproved => found.obstacles.push(Obstacle::Unproved(end)),
        _ if !node.answers() => found.obstacles.push(Obstacle::NoAgent(end)),
        None => found.obstacles.push(Obstacle::Unknown { end, what: "clock" }),
        Some(ms) if ms.saturating_abs() > MOST_CLOCK_MS => {
            let seconds = ms.saturating_abs() / 1000;
            found.obstacles.push(Obstacle::Clock { end, seconds });
        }
        Some(_) => {}
    }
    if node.answers() && node.vm_agent.against().is_some() {
        found.obstacles.push(Obstacle::VmAgent { end, vm_agent: node.vm_agent });
    }
    if !node.can_resume {
        found.warnings.push(Warning::NoResume(end));
    }
    if let Some(at) = node.next_reboot.filter(|at| *at >= now) {
        found.warnings.push(Warning::Reboot(end, at));
    }
}

fn of_pair(source: &Node, target: &Node, found: &mut Findings) {
    if let (Some(source_version), Some(target_version)) =
        (source.agent_version, target.agent_version)
        && source_version != target_version
    {
        found.obstacles.push(Obstacle::Agents { source_version, target_version });
    }
    if let Some((source_cpu, target_cpu)) =
        both("CPU", (source, &source.cpu), (target, &target.cpu), found)
        && source_cpu != target_cpu
    {
        found.obstacles.push(Obstacle::Cpu { source_cpu, target_cpu });
    }
    if let (Some(own), Some(pool)) = (&source.pool, &target.pool)
        && own != pool
    {
        let (pool, own) = (pool.clone(), own.clone());
        found.obstacles.push(Obstacle::Pool { end: End::Target, pool, own });
    }
    match (source.encrypted, target.encrypted) {
        (Some(true), Some(false)) => found.obstacles.push(Obstacle::PlainTarget),
        (Some(false), Some(true)) => found.warnings.push(Warning::EncryptedTarget),
        _ => {}
    }
    let platforms = both("platform", (source, &source.platform), (target, &target.platform), found);
    // Buildstamps are compared as texts: they have one length and form.
    if let Some((source_platform, target_platform)) = platforms
        && target_platform < source_platform
    {
        found.obstacles.push(Obstacle::Platform { source_platform, target_platform });
    }
}

/// Returns both values, or notes which of them is not known.
fn both(
    what: &'static str,
    (source, of_source): (&Node, &Option<String>),
    (target, of_target): (&Node, &Option<String>),
    found: &mut Findings,
) -> Option<(String, String)> {
    for (end, node, value) in [(End::Source, source, of_source), (End::Target, target, of_target)] {
        if value.is_none() && node.answers() {
            found.obstacles.push(Obstacle::Unknown { end, what });
        }
    }
    of_source.clone().zip(of_target.clone())
}

fn of_target(used: u64, target: &Node, found: &mut Findings) {
    match target.free_bytes {
        None if !target.answers() => {}
        None => found.obstacles.push(Obstacle::Unknown { end: End::Target, what: "free space" }),
        Some(free) if free < used => found.obstacles.push(Obstacle::Room { free, used }),
        Some(_) => {}
    }
    if !target.missing_nic_tags.is_empty() {
        let tags: Vec<&str> = target.missing_nic_tags.iter().map(String::as_str).collect();
        found.obstacles.push(Obstacle::NicTags(tags.join(", ")));
    }
    if target.lacks_limits {
        found.obstacles.push(Obstacle::Limits);
    }
    if target.has_copy {
        found.obstacles.push(Obstacle::HasCopy);
    }
    if !target.in_the_way.is_empty() {
        found.obstacles.push(Obstacle::InTheWay(target.in_the_way.join(", ")));
    }
}

#[cfg(test)]
mod tests;
