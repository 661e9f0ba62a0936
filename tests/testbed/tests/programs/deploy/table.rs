// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `deploy/files`, the table of what is shipped, as `deploy/package` reads it; and what a package for apm has
//! elsewhere once it is installed.

use std::collections::{BTreeMap, BTreeSet};

use simnode::{NodeKind, Place};

use super::text;

/// The folder of the agents of a node.
pub const AGENTS: &str = "/opt/smartdc/agents";

/// A line `package` of the table.
#[derive(Clone, Debug)]
pub struct Package {
    pub name: String,
    pub forms: Vec<String>,
    /// What becomes of its folder: `kept`, `platform` or `zone`.
    pub kind: String,
    pub folder: String,
}

/// A file of a package.
#[derive(Clone, Debug)]
pub struct File {
    pub mode: String,
    /// Below the package's folder.
    pub place: String,
    pub source: String,
}

impl Package {
    pub fn is_for_apm(&self) -> bool {
        self.forms.iter().any(|form| form == "apm")
    }

    /// The absolute path of a file in the package's folder.
    pub fn path(&self, place: &str) -> String {
        format!("{}/{place}", self.folder.trim_end_matches('/'))
    }

    /// The files in its folder.
    pub fn files(&self) -> Vec<File> {
        let table = text("files");
        let mut files = Vec::new();
        let mut is_ours = false;
        for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let words: Vec<&str> = line.splitn(3, ' ').collect();
            match words[..] {
                ["package", ..] => {}
                ["for", ..] => {
                    let of =
                        |word: &str| word == self.name || self.forms.iter().any(|it| it == word);
                    is_ours = line.split(' ').skip(1).any(of);
                }
                [mode, place, source] if is_ours => files.push(File {
                    mode: mode.to_owned(),
                    place: place.replace("NAME", &self.name),
                    source: source.replace("NAME", &self.name),
                }),
                [_, _, _] => {}
                _ => panic!("deploy/files: {line}"),
            }
        }
        files
    }

    /// The files that are elsewhere once the package is installed, with their sources: made by apm (links), by
    /// postinstall, and by the package's service at each boot.
    pub fn elsewhere(&self) -> Vec<(String, String)> {
        if !self.is_for_apm() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for file in self.files() {
            let Some((folder, name)) = file.place.rsplit_once('/') else { continue };
            let to = match folder {
                "bin" => format!("{AGENTS}/bin/{name}"),
                "etc" => format!("{AGENTS}/etc/{name}"),
                "man/man8" => format!("/opt/smartdc/man/man8/{name}"),
                "smf/manifests" => format!("{AGENTS}/smf/{}", name.trim_end_matches(".in")),
                _ => continue,
            };
            found.push((to, file.source));
        }
        if self.has("sapi_manifests/") {
            found.push((format!("{AGENTS}/etc/{}", self.name), "uuid".to_owned()));
            let instance = format!("{AGENTS}/etc/config-agent.d/{}.json", self.name);
            found.push((instance, "uuid".to_owned()));
        }
        found
    }

    fn has(&self, folder: &str) -> bool {
        self.files().iter().any(|file| file.place.starts_with(folder))
    }
}

pub fn packages() -> Vec<Package> {
    let table = text("files");
    let lines = table.lines().filter_map(|line| line.strip_prefix("package "));
    let words = lines.map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    let packages = words.map(|words| {
        let [name, forms, kind, folder] = words.try_into().expect("package NAME FORM KIND FOLDER");
        let forms = forms.split(',').map(str::to_owned).collect();
        Package { name, forms, kind, folder }
    });
    packages.collect()
}

/// Place, without its first slash, and source of each file that anything has once it is installed.
pub fn layout() -> BTreeMap<String, String> {
    let all = packages().into_iter().flat_map(|package| {
        let inside = package.files().into_iter().map(|it| (package.path(&it.place), it.source));
        inside.chain(package.elsewhere()).collect::<Vec<_>>()
    });
    all.map(|(place, source)| (place[1..].to_owned(), source)).collect()
}

/// Returns true if a place is kept on every node of a data centre.
fn is_kept(place: &str) -> bool {
    let nodes = [NodeKind::Compute, NodeKind::Headnode];
    nodes.iter().all(|on| simnode::places::place(place, *on) == Place::Kept)
}

#[test]
fn nothing_of_a_live_node_is_lost_at_a_boot_or_cannot_be_written() {
    let live: Vec<Package> = packages()
        .into_iter()
        .filter(|package| !["platform", "zone"].contains(&&*package.kind))
        .collect();
    assert!(live.len() >= 6, "{live:?}");
    for package in &live {
        assert_eq!(package.kind, "kept", "{}", package.name);
        let inside = package.files().into_iter().map(|it| package.path(&it.place));
        for place in inside.chain(package.elsewhere().into_iter().map(|it| it.0)) {
            assert!(is_kept(&place), "{}: {place} is not kept", package.name);
        }
    }
    for lost in ["/usr/vm/sbin/kvmd", "/etc/vminfod.json", "/lib/svc/manifest/system/kvmd.xml"] {
        assert!(!is_kept(lost), "{lost}");
    }
}

#[test]
fn what_is_in_the_ramdisk_is_made_by_a_service_that_is_imported_at_each_boot() {
    // What a service of ours makes at a boot is named by its method alone.
    let method = text("smf/method/boot");
    let made = ["/etc/bash/bash_completion.d", "/etc/logadm.conf"];
    assert!(made.iter().all(|place| !is_kept(place) && method.contains(place)), "{method}");
    for package in packages().iter().filter(|package| package.is_for_apm()) {
        let manifest = format!("{AGENTS}/smf/{}-boot.xml", package.name);
        let elsewhere: BTreeMap<String, String> = package.elsewhere().into_iter().collect();
        assert_eq!(elsewhere.get(&manifest).map(String::as_str), Some("deploy/smf/boot.xml.in"));
        let xml = text("smf/boot.xml.in");
        assert!(xml.contains("enabled=\"true\"") && xml.contains("/smf/boot start"), "{xml}");
        let needs = |folder: &str| package.has(folder);
        assert!(needs("completions/") && needs("smf/boot"), "{}", package.name);
    }
}

#[test]
fn each_file_is_in_one_row_and_each_row_is_of_a_package() {
    let packages = packages();
    let mut places = BTreeSet::new();
    for package in &packages {
        let files = package.files();
        assert!(files.len() > 5, "{}: {files:?}", package.name);
        for file in files {
            let place = format!("{} {}", package.name, file.place);
            assert!(places.insert(place.clone()), "{place} is twice in deploy/files");
            let is_mode = file.mode == "link" || u32::from_str_radix(&file.mode, 8).is_ok();
            assert!(is_mode, "{place}: {}", file.mode);
        }
    }
    let known: BTreeSet<&str> = packages
        .iter()
        .flat_map(|it| it.forms.iter().map(String::as_str).chain([it.name.as_str()]))
        .collect();
    let table = text("files");
    for line in table.lines().filter_map(|line| line.strip_prefix("for ")) {
        assert!(
            line.split(' ').all(|word| known.contains(word)),
            "for {line}: nobody has this name"
        );
    }
}
