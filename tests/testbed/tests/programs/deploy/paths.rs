// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Paths that the programs have as defaults, and that `deploy/` names: each is one that the platform image has or
//! that deployed code uses (`platform-paths.tsv`), or is in our own layout, or stands here with its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::deploy;
use super::table::{layout, packages};

/// Files and folders of the platform image, and programs by the path that deployed code uses.
const PLATFORM: &str = include_str!("platform-paths.tsv");

/// What neither list has and who makes it; with a slash at its end, a folder and all that is below it.
const ELSEWHERE: [(&str, &str); 39] = [
    ("/bin", "the platform's link to /usr/bin, where its sh(1) is"),
    ("/dev/", "made by the kernel"),
    ("/etc/hostname", "inside a docker zone"),
    ("/etc/hosts", "inside a docker zone"),
    ("/etc/passwd", "passwd(5): who runs a program"),
    ("/etc/resolv.conf", "inside a docker zone"),
    ("/etc/zones/", "zonecfg(8) keeps the zones and their index there"),
    ("/lib/svc/share/smf_include.sh", "of SMF, named by smf_method(7)"),
    ("/opt/smartdc/agents", "the agents' installer makes bin, etc and lib/node_modules in it"),
    ("/opt/smartdc/agents/etc/fleet-agent.config.json", "an operator writes it"),
    ("/opt/smartdc/agents/etc/fleet-agent.nkey", "an operator puts it there"),
    ("/opt/smartdc/agents/etc/fleet-ca.pem", "an operator puts it there"),
    ("/opt/smartdc/agents/etc/sdc-fleet.nkey", "an operator puts it there"),
    ("/opt/smartdc/agents/etc/console.config.json", "an operator writes it"),
    ("/opt/smartdc/agents/etc/kvmd.config.json", "an operator writes it"),
    ("/opt/smartdc/agents/etc/migration-agent.config.json", "config-agent writes it"),
    ("/opt/smartdc/agents/etc/net-agent.config.json", "config-agent writes it"),
    ("/opt/smartdc/agents/etc/sdc-migrate.config.json", "an operator writes it"),
    ("/opt/smartdc/agents/etc/sdc-voladm.config.json", "an operator writes it"),
    ("/opt/smartdc/agents/etc/vm-agent.config.json", "config-agent writes it"),
    ("/opt/smartdc/bin/", "the headnode's commands are there"),
    ("/opt/smartdc/agents/etc/sdc-fleet.config.json", "an operator writes it"),
    ("/opt/smartdc/boot/", "of a service zone: sdc-scripts are there"),
    ("/opt/smartdc/feed/", "its zone's own folder"),
    ("/opt/smartdc/hub/operator", "sdc-migrate makes it"),
    ("/opt/smartdc/man/", "MANPATH has it"),
    ("/opt/smartdc/migration-service/", "its zone's own folder"),
    ("/opt/smartdc/volapi/", "its zone's own folder"),
    ("/proc/", "of the kernel"),
    ("/tmp/.sysinfo.json", "sysinfo(8) writes it"),
    ("/etc/svc/volatile/", "of SMF, empty after a boot"),
    ("/usr/bin/svcprop", "of illumos: svcprop(1)"),
    ("/usr/bin/uname", "of illumos: uname(1)"),
    ("/usr/sbin/zonecfg", "of illumos; vmadm starts it by its name alone"),
    ("/usr/share/", "of illumos: manual pages, completions, the document type of manifests"),
    ("/var/db/", "each program makes its own folder in it"),
    ("/var/log/", "NAME-boot makes a folder in it for rotated logs"),
    ("/var/run/", "each program makes its own folder in it; ganeti has its own there"),
    ("/var/svc/log/", "SMF writes the logs of services there"),
];

/// Folders at the root of a node; other texts that begin with a slash are routes.
const ROOTS: [&str; 11] =
    ["bin", "dev", "etc", "lib", "opt", "proc", "sbin", "tmp", "usr", "var", "zones"];

/// The crates of the programs, whose sources have the defaults.
const CRATES: [&str; 15] = [
    "vminfod",
    "net-agent",
    "vm-agent",
    "kvmd",
    "migration/core",
    "migration/agent",
    "migration/service",
    "migration/cli",
    "console",
    "volumes/core",
    "volumes/volapi",
    "volumes/cli",
    "fleet/agent",
    "fleet/cli",
    "daemon",
];

/// The paths of the platform, and the folders that they are in.
pub fn platform() -> BTreeSet<String> {
    let lines = PLATFORM.lines().filter(|line| !line.starts_with('#'));
    let paths = lines.filter_map(|line| line.split('\t').next());
    let with_folders = paths.flat_map(|path| Path::new(path).ancestors());
    with_folders.map(|path| path.to_string_lossy().into_owned()).collect()
}

fn is_path(text: &str) -> bool {
    let first = text.strip_prefix('/').and_then(|rest| rest.split('/').next());
    first.is_some_and(|first| ROOTS.contains(&first))
}

/// Returns true if the entry of [`ELSEWHERE`] has this path.
fn covers(entry: &str, path: &str) -> bool {
    match entry.strip_suffix('/') {
        Some(folder) => path == folder || path.starts_with(entry),
        None => path == entry,
    }
}

/// Returns true if the path is of the platform, of ours, or known with its reason.
fn is_known(path: &str, platform: &BTreeSet<String>, ours: &BTreeSet<String>) -> bool {
    let path = path.trim_end_matches('/');
    platform.contains(path)
        || ours.contains(path)
        || ELSEWHERE.iter().any(|(known, _)| covers(known, path))
}

/// Our own files and the folders that they are in.
fn ours() -> BTreeSet<String> {
    let places = layout().into_keys().map(|place| format!("/{place}"));
    let folders = |place: String| {
        let all = Path::new(&place).ancestors().map(|path| path.to_string_lossy().into_owned());
        all.collect::<Vec<_>>()
    };
    places.flat_map(folders).collect()
}

/// The paths in the texts of a source, without its tests.
fn of_source(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let texts = lines.flat_map(|line| line.split('"').skip(1).step_by(2));
    let paths = texts.filter(|text| !text.contains(char::is_whitespace));
    paths.flat_map(|text| text.split(':')).filter(|text| is_path(text)).map(str::to_owned).collect()
}

/// The paths in a file of `deploy/`.
fn of_text(text: &str) -> Vec<String> {
    let words = text.split(|c: char| c.is_whitespace() || "\"'`<>()&;,=".contains(c));
    words.filter(|word| is_path(word)).map(|word| word.trim_end_matches('.').to_owned()).collect()
}

/// Every file below a folder.
fn files(dir: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

/// Each path, with the files that name it.
fn named() -> BTreeMap<String, Vec<String>> {
    let root = deploy("..").canonicalize().unwrap();
    let mut named: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut add = |path: &Path, paths: Vec<String>| {
        let file = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        paths.into_iter().for_each(|path| named.entry(path).or_default().push(file.clone()));
    };
    for name in CRATES {
        let mut sources = Vec::new();
        files(&root.join(name).join("src"), &mut sources);
        let is_test = |path: &Path| path.components().any(|part| part.as_os_str() == "tests");
        for path in sources {
            let is_code = path.extension().is_some_and(|kind| kind == "rs");
            if is_code && path.file_name().unwrap() != "tests.rs" && !is_test(&path) {
                add(&path, of_source(&std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    for folder in ["smf", "bin", "sapi", "config", "log"] {
        let mut shipped = Vec::new();
        files(&root.join("deploy").join(folder), &mut shipped);
        for path in shipped {
            add(&path, of_text(&std::fs::read_to_string(&path).unwrap()));
        }
    }
    named
}

#[test]
fn each_path_is_of_the_platform_or_of_ours_or_has_its_reason() {
    let (platform, ours, named) = (platform(), ours(), named());
    assert!(named.len() > 70, "{}", named.len());
    let unknown: Vec<_> =
        named.iter().filter(|(path, _)| !is_known(path, &platform, &ours)).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
    // Each reason is needed, and damage is found.
    for (known, why) in ELSEWHERE {
        let is_named = named.keys().chain(&ours).any(|path| covers(known, path));
        assert!(is_named, "{known} ({why}) is named nowhere");
    }
    for wrong in ["/usr/vm/sbin/sysevent", "/usr/sbin/kstat", "/opt/smartdc/agents/etc/x.json"] {
        assert!(!is_known(wrong, &platform, &ours), "{wrong}");
    }
}

#[test]
fn a_platform_of_ours_has_its_files_where_the_platforms_are() {
    let platform = platform();
    let of_platform = packages().into_iter().find(|it| it.name == "platform").unwrap();
    let folders = ["/etc", "/usr/share/man/man8"];
    for file in of_platform.files() {
        let place = of_platform.path(&file.place);
        let folder = Path::new(&place).parent().unwrap().to_string_lossy();
        let is_there = platform.contains(&*folder) || folders.contains(&&*folder);
        assert!(is_there, "{place}: nobody makes its folder");
    }
    // What the platform has under the same name is replaced where it is.
    let own = layout().get("lib/svc/manifest/system/system-vminfod.xml").cloned();
    assert_eq!(own.as_deref(), Some("deploy/smf/vminfod.xml"));
    assert!(layout().contains_key("usr/vm/smf/system-vminfod"));
}
