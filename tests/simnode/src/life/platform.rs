// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The services of the platform image that order a boot.

use super::manifest::{Dependency, Described, Grouping};

/// Imports the manifests of the kept places.
pub(super) const MANIFEST_IMPORT: &str = "system/manifest-import";
/// Boots the zones with autoboot.
pub const ZONES: &str = "system/zones";
/// The hub.
pub const VMINFOD: &str = "system/smartdc/vminfod";
/// Boots the VMs that it boots itself, those of KVM.
pub const VMADMD: &str = "system/smartdc/vmadmd";

/// Each service, its start method, what must run before it, and what is waited for if it is enabled.
const SERVICES: &[(&str, &str, &[&str], &[&str])] = &[
    ("system/filesystem/root", "/lib/svc/method/fs-root", &[], &[]),
    ("system/filesystem/usr", "/lib/svc/method/fs-usr", &["system/filesystem/root"], &[]),
    ("system/filesystem/smartdc", "/lib/svc/method/fs-joyent", &["system/filesystem/usr"], &[]),
    (
        "system/filesystem/minimal",
        "/lib/svc/method/fs-minimal",
        &["system/filesystem/smartdc"],
        &[],
    ),
    (
        MANIFEST_IMPORT,
        "/lib/svc/method/manifest-import",
        &["system/filesystem/minimal"],
        &["system/smartdc/config"],
    ),
    (
        "system/smartdc/config",
        "/lib/svc/method/smartdc-config",
        &["system/filesystem/minimal"],
        &[],
    ),
    ("milestone/single-user", "", &["system/filesystem/minimal"], &[MANIFEST_IMPORT]),
    ("system/filesystem/local", "/lib/svc/method/fs-local", &["milestone/single-user"], &[]),
    ("milestone/network", "", &["milestone/single-user"], &[]),
    (
        ZONES,
        "/lib/svc/method/svc-zones start",
        &["system/filesystem/local", "milestone/network"],
        &[],
    ),
    (VMINFOD, "/usr/vm/smf/system-vminfod start", &["system/filesystem/local"], &[]),
    ("system/smartdc/init", "/lib/svc/method/smartdc-init", &[ZONES], &[]),
    (VMADMD, "/usr/vm/smf/system-vmadmd start", &["system/smartdc/init", VMINFOD], &[]),
    ("system/smartdc/metadata", "/usr/vm/smf/system-metadata start", &[VMINFOD], &[]),
];

/// Returns the services that the image's repository has.
pub(super) fn services() -> impl Iterator<Item = Described> {
    SERVICES.iter().map(|(name, exec, required, optional)| {
        let groups =
            [(Grouping::RequireAll, required), (Grouping::OptionalAll, optional)].into_iter();
        let dependencies = groups.filter(|(_, services)| !services.is_empty());
        let names = |services: &[&str]| services.iter().map(|it| (*it).to_owned()).collect();
        Described {
            name: (*name).to_owned(),
            instances: [("default".to_owned(), true)].into(),
            dependencies: dependencies
                .map(|(grouping, services)| Dependency { grouping, services: names(services) })
                .collect(),
            properties: [("start/exec".to_owned(), (*exec).to_owned())].into(),
            ..Described::default()
        }
    })
}
