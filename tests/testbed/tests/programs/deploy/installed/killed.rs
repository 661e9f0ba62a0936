// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The scripts of a package are killed after any of their lines: the next install, or the script run once more, makes
//! the same of the node as if nothing had happened.

use std::collections::BTreeMap;

use super::super::packed::STAMP;
use super::site::{NEWER, Site, package};

/// Kills a script of a package before it has run so many commands plus one. A subshell dies too: it would go on beside
/// the next install, and kill whoever has the script's number then.
fn kill_after(site: &Site, commands: usize) -> String {
    let file = site.dir.path().join("kill");
    let text = format!(
        "case $0 in */npm/post*.sh) set -T; ran=0; trap 'ran=$((ran + 1)); [ $ran -le {commands} ] || kill -9 $$ $BASHPID' \
         DEBUG ;; esac\n"
    );
    std::fs::write(&file, text).unwrap();
    file.to_string_lossy().into_owned()
}

/// The node's files, with one word for the uuid that was drawn.
fn files(site: &Site) -> BTreeMap<String, String> {
    let uuid = site.read("etc/net-agent").trim().to_owned();
    let files = site.files().into_iter();
    files.map(|(place, text)| (place, text.replace(&uuid, "UUID"))).collect()
}

/// The services that SMF knows, and the instances of SAPI.
fn known(site: &Site) -> (Vec<Option<String>>, usize) {
    let names = ["net-agent", "net-agent-boot", "net-agent-setup"];
    let states = names.map(|name| site.state(&format!("svc:/smartdc/agent/{name}:default")));
    let instance = site.sapi.store().get(site.read("etc/net-agent").trim());
    (states.to_vec(), usize::from(instance.is_some()))
}

/// Kills after every so manyth line; returns how many deaths there were.
fn dies_after_each(step: usize, first: Option<&str>, file: &str) -> usize {
    let wanted = {
        let site = Site::new();
        first.into_iter().for_each(|first| site.installs(first));
        site.installs(file);
        (files(&site), known(&site))
    };
    let mut deaths = 0;
    for commands in (0..).step_by(step) {
        let site = Site::new();
        first.into_iter().for_each(|first| site.installs(first));
        let kill = kill_after(&site, commands);
        let done = site.apm(&["install", file], &[("BASH_ENV", &kill)]);
        if done.code == Some(0) {
            assert_eq!((files(&site), known(&site)), wanted, "after {commands} commands");
            return deaths;
        }
        deaths += 1;
        site.installs(file);
        assert_eq!((files(&site), known(&site)), wanted, "killed after {commands} commands");
    }
    deaths
}

#[test]
fn a_package_killed_after_some_of_its_lines_is_whole_after_the_next_install() {
    let (one, two) = (package("net-agent", STAMP), package("net-agent", NEWER));
    assert!(dies_after_each(29, None, &one) > 2);
    assert!(dies_after_each(41, Some(&one), &two) > 1);
}

#[test]
#[ignore = "takes minutes"]
fn a_package_killed_after_any_of_its_lines_is_whole_after_the_next_install() {
    let (one, two) = (package("net-agent", STAMP), package("net-agent", NEWER));
    let deaths = dies_after_each(1, None, &one);
    let updates = dies_after_each(1, Some(&one), &two);
    assert!(deaths > 50 && updates > 50, "{deaths} and {updates} deaths");
    println!("{deaths} deaths of an installation, {updates} of an update");
}
