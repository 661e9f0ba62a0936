// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A package is installed in a mount namespace: the node's root is the root, `/usr` is this machine's and read-only, the
//! scripts run without `HUB_ROOT`, by the paths that they have on a node. Skipped with a word where nobody may mount.

use std::path::Path;

use super::super::packed::STAMP;
use super::super::table::packages;
use super::super::{LATE, block_on, run};
use super::site::{Site, package};
use testbed::process;

#[test]
fn a_package_installs_by_the_paths_of_a_node_where_usr_is_read_only() {
    let namespace = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let can = run(
        "unshare",
        &[namespace, "sh", "-c", "mount --make-rprivate / && mount --bind /usr /usr"],
    );
    if can.code != Some(0) {
        eprintln!("skipped: nothing can be mounted here: {}", can.stderr.trim());
        return;
    }
    let site = Site::new();
    let before = site.files();
    let file = package("net-agent", STAMP);
    let program = super::super::super::common::program();
    let seen = [site.node.dir(), Path::new(&file).parent().unwrap(), program.parent().unwrap()];
    let mounts: String = seen
        .iter()
        .map(|dir| format!("mkdir -p '.{0}'; mount --bind '{0}' '.{0}'\n", dir.display()))
        .collect();
    let install = format!("/opt/smartdc/agents/bin/apm install '{file}'");
    let script = format!(
        "set -e\nmount --make-rprivate /\ncd '{root}'\nmkdir -p usr dev proc lib tmp\n{mounts}\
         for it in bin sbin lib64; do [ -e $it ] || ln -s usr/$it $it; done\n\
         for it in /usr/lib/*-linux-gnu; do [ -e lib/${{it##*/}} ] || ln -s ..$it lib/; done\n\
         mount --bind /usr usr\nmount -o remount,bind,ro usr\nmount --rbind /dev dev\n\
         exec chroot . /usr/bin/env -i PATH='{platform}':/usr/bin:/bin HUB_ROOT= /bin/bash -c \
         'touch /usr/x 2>/dev/null && exit 3; exec \"$@\"' - {install}",
        root = site.node.root().display(),
        platform = site.node.dir().join("platform").display(),
    );
    let args = [namespace, "bash", "-c", &script];
    let done = block_on(process::run(Path::new("/usr/bin/unshare"), &args, LATE));
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    // By each path it lies where the table says, and nothing else of the node has changed.
    let mut files = site.files();
    files.retain(|place, _| !before.contains_key(place));
    let package = packages().into_iter().find(|it| it.name == "net-agent").unwrap();
    for (place, _) in package.elsewhere() {
        let shown = place.replace("/opt/smartdc/agents/smf/", "/var/svc/manifest/site/");
        assert!(
            files.remove(&place).or_else(|| files.remove(&shown)).is_some(),
            "{place}: {}",
            done.stderr
        );
    }
    files.retain(|place, _| !place.starts_with(&format!("{}/", package.folder)));
    assert!(files.is_empty(), "{files:?}");
    assert_eq!(site.state("svc:/smartdc/agent/net-agent:default").as_deref(), Some("online"));
}
