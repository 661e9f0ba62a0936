// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What of a VM does not come to the target, by the object that its node shows: refused, or warned about.

use std::net::Ipv4Addr;

use sdc_clients::quoted;
use serde_json::{Map, Value};

use crate::carried::{self, Brands, How, entries, root, text};
use crate::target_payload::{DOCKER_MOUNTS, Unfit, made_of};

/// Why a VM does not move.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stays {
    /// No node would create it.
    #[error(transparent)]
    Unfit(Unfit),
    /// CNAPI creates a guest of the image of its first disk, and ends its process where there is none.
    #[error("The instance's first disk has no image, and CNAPI creates no guest without one")]
    NoImage,
    /// The target's zone, and so its datasets, have the name of the uuid.
    #[error("The zone's name {} is not the instance's uuid", quoted(.0))]
    Zonename(String),
    /// vmadm refuses each update of the instance.
    #[error("vmadm rejects the instance's route to {}, and so every update of it", quoted(.0))]
    Route(String),
    /// Only the root and the dataset `data` below it are sent.
    #[error("The delegated dataset {0} does not move")]
    Dataset(String),
    /// Streams keep the names of volumes, and the target has those that a creation gives.
    #[error("The disk {volume} does not move: the target has {made} in its place")]
    Volume {
        volume: String,
        /// That of the target.
        made: String,
    },
    /// The target's node does not have it.
    #[error("The device {0} of the node does not move")]
    Device(String),
    /// What is mounted lies on the node, or the brand has no mounts.
    #[error("The mount {target} of {what} does not move")]
    Mount {
        /// Where it is mounted.
        target: String,
        what: String,
    },
}

/// What reaches the target only if an operator sees to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Needs {
    /// vmadm does not set it.
    #[error("{0} is not carried")]
    NotCarried(&'static str),
    /// Its contents are the node's.
    #[error("The mount {target} needs {what} on the target's node too")]
    Mount {
        /// Where it is mounted.
        target: String,
        what: String,
    },
    /// A file of the node.
    #[error("The CD-ROM {0} has to be on the target's node too")]
    Cdrom(String),
}

/// What was found.
type Found = (Vec<Stays>, Vec<Needs>);

/// Returns the image that CNAPI creates a VM of: a guest's is that of its first disk.
pub fn image(vm: &Map<String, Value>) -> Option<&str> {
    let first = || vm.get("disks")?.as_array()?.first()?.as_object();
    let of = if is_hvm(vm) { first()? } else { vm };
    text(of, "image_uuid").filter(|image| !image.is_empty())
}

/// Returns true for a guest whose first disk, be it a CD-ROM, has no image.
pub fn lacks_image(vm: &Map<String, Value>) -> bool {
    is_hvm(vm) && image(vm).is_none()
}

fn is_hvm(vm: &Map<String, Value>) -> bool {
    text(vm, "brand").is_some_and(|brand| Brands::HVM.has(brand))
}

/// Returns the obstacles to moving this VM to any node, and its warnings.
pub fn check(vm: &Map<String, Value>) -> (Vec<Stays>, Vec<Needs>) {
    let unfit = made_of(vm).1.into_iter().map(Stays::Unfit);
    let mut found: Found = (unfit.collect(), Vec::new());
    if let (Some(name), Some(uuid)) = (text(vm, "zonename"), text(vm, "uuid"))
        && name != uuid
    {
        found.0.push(Stays::Zonename(name.to_owned()));
    }
    if lacks_image(vm) {
        found.0.push(Stays::NoImage);
    }
    routes(vm, &mut found);
    datasets(vm, &mut found);
    disks(vm, &mut found);
    mounts(vm, &mut found);
    let warned = carried::TOP.iter().filter(|row| row.how == How::Warned);
    let has = |row: &&carried::Row| vm.get(row.key).is_some_and(|value| !value.is_null());
    found.1.extend(warned.filter(has).map(|row| Needs::NotCarried(row.key)));
    found
}

/// `vmadm` checks a VM's routes again in each update: with one that it refuses no copy could be stopped for good, or
/// hidden.
fn routes(vm: &Map<String, Value>, found: &mut Found) {
    for (destination, gateway) in vm.get("routes").and_then(Value::as_object).into_iter().flatten()
    {
        let gateway = gateway.as_str().unwrap_or_default();
        if !is_network(destination) || !is_gateway(gateway, &entries(vm, "nics")) {
            found.0.push(Stays::Route(destination.clone()));
        }
    }
}

fn is_network(text: &str) -> bool {
    let (address, prefix) = text.split_once('/').unwrap_or((text, "32"));
    let is_prefix = prefix.parse::<u8>().is_ok_and(|bits| (8..=32).contains(&bits));
    is_prefix && address.parse::<Ipv4Addr>().is_ok()
}

/// An address, or a NIC of the VM that has one of its own.
fn is_gateway(text: &str, nics: &[&Map<String, Value>]) -> bool {
    let named = |word: &str| text.strip_prefix(word)?.strip_prefix('[')?.strip_suffix(']');
    let nic = match (named("nics"), named("macs")) {
        (Some(at), _) => at.parse::<usize>().ok().and_then(|at| nics.get(at)),
        (_, Some(mac)) => nics.iter().find(|nic| carried::text(nic, "mac") == Some(mac)),
        _ => return text.parse::<Ipv4Addr>().is_ok(),
    };
    nic.is_some_and(|nic| carried::text(nic, "ip").is_some_and(|ip| ip.parse::<Ipv4Addr>().is_ok()))
}

/// The root, and `data` below it: nothing else is sent.
fn datasets(vm: &Map<String, Value>, found: &mut Found) {
    let own = root(vm).map(|root| format!("{root}/data"));
    let is_os = text(vm, "brand").is_some_and(|brand| Brands::OS.has(brand));
    let mut has_own = false;
    for name in vm.get("datasets").and_then(Value::as_array).into_iter().flatten() {
        let name = name.as_str().unwrap_or_default();
        if is_os && !has_own && Some(name) == own.as_deref() {
            has_own = true;
        } else {
            found.0.push(Stays::Dataset(name.to_owned()));
        }
    }
}

/// A disk moves if it is the volume that a creation makes at its place in the list. All others are devices of the
/// node, or volumes of another pool; a CD-ROM is a file.
fn disks(vm: &Map<String, Value>, found: &mut Found) {
    let brand = text(vm, "brand").unwrap_or_default();
    let root = root(vm).unwrap_or_default();
    let mut made = 0;
    for disk in entries(vm, "disks") {
        let path = text(disk, "path").unwrap_or_default();
        let is_hvm = Brands::HVM.has(brand);
        if is_hvm && text(disk, "media") == Some("cdrom") {
            if !path.starts_with(&format!("/{root}/")) {
                found.1.push(Needs::Cdrom(path.to_owned()));
            }
            continue;
        }
        let name = match brand {
            "kvm" => format!("{root}-disk{made}"),
            _ => format!("{root}/disk{made}"),
        };
        made += 1;
        if is_hvm && text(disk, "zfs_filesystem") == Some(&name) {
            continue;
        }
        found.0.push(match text(disk, "zfs_filesystem") {
            Some(volume) => Stays::Volume { volume: volume.to_owned(), made: name },
            None => Stays::Device(path.to_owned()),
        });
    }
}

/// What a zone mounts from its node.
fn mounts(vm: &Map<String, Value>, found: &mut Found) {
    let is_os = text(vm, "brand").is_some_and(|brand| Brands::OS.has(brand));
    let own = format!("/{}/", root(vm).unwrap_or_default());
    for mount in entries(vm, "filesystems") {
        let get = |key: &str| text(mount, key).unwrap_or_default().to_owned();
        let (target, what, raw, kind) = (get("target"), get("source"), get("raw"), get("type"));
        if vm.get("docker") == Some(&Value::Bool(true)) && DOCKER_MOUNTS.contains(&target.as_str())
        {
            continue;
        }
        match kind.as_str() {
            _ if !is_os => found.0.push(Stays::Mount { target, what }),
            _ if !raw.is_empty() => found.0.push(Stays::Device(raw)),
            "lofs" if what.starts_with(&own) => {}
            "lofs" | "nfs" => found.1.push(Needs::Mount { target, what }),
            _ => found.0.push(Stays::Mount { target, what }),
        }
    }
}
