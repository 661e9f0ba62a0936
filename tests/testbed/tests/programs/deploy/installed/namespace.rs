// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Lines that run on an imitated node by the paths that it has: its root is the root, `/usr` is read-only and has the
//! platform's programs beside this machine's, what SMF's mounts show is mounted. What was started ends with the lines.

use std::io;
use std::path::{Path, PathBuf};

use simnode::Node;
use testbed::process::{self, Finished};

use super::super::LATE;
use super::site::{METHOD, VMINFOD};
use crate::common::program;

const JAIL: [&str; 6] = ["-r", "-m", "-p", "-f", "--kill-child", "--mount-proc"];

/// Returns why no namespace can be made here, if so.
pub async fn missing() -> Option<String> {
    let args = [&JAIL[..], &["sh", "-c", "mount --make-rprivate / && mount --bind /usr /usr"]];
    match process::run(Path::new("/usr/bin/unshare"), &args.concat(), LATE).await {
        Ok(done) if done.code == Some(0) => None,
        Ok(done) => Some(done.stderr.trim().to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

/// Lays into the platform's image what it needs to run programs of ours: the simulated ones at their places.
pub fn furnish(node: &Node) {
    let put = |place: &str, text: String| node.put_image(place, text.as_bytes(), 0o555).unwrap();
    let tools = ["zoneadm", "zfs", "sysevent"].map(|it| ("sbin", it, node.tool(it)));
    let smf =
        ["svcadm", "svccfg", "mount", "umount", "logadm"].map(|it| ("sbin", it, node.platform(it)));
    let shown = ["svcs", "svcprop", "kstat", "uname"];
    let shown = shown.map(|it| ("bin", it, node.platform(it)));
    for (folder, name, to) in tools.into_iter().chain(smf).chain(shown) {
        let real = match name {
            "mount" => "[ \"$1\" != -F ] || /machine/bin/mount --bind \"$3\" \"$4\" || exit 1\n",
            // SMF starts what is enabled; only vminfod is asked for by a command.
            "svcadm" => {
                "case $* in 'enable -st vminfod') /usr/vm/smf/system-vminfod start >/dev/null 2>&1 ;; esac\n"
            }
            "umount" => "/machine/bin/umount \"$1\"\n",
            _ => "",
        };
        put(
            &format!("/usr/{folder}/{name}"),
            format!("#!/bin/sh\n{real}exec '{}' \"$@\"\n", to.display()),
        );
    }
    let fswatcher = node.tool("fswatcher");
    put("/usr/vm/sbin/fswatcher", format!("#!/bin/sh\nexec '{}' \"$@\"\n", fswatcher.display()));
    let vmadm = format!("#!/bin/sh\nexec '{}' @vmadm \"$@\"\n", program().display());
    put("/usr/sbin/vmadm", vmadm);
    put("/usr/sbin/zpool", "#!/bin/sh\nexit 1\n".to_owned());
    let smf = "SMF_EXIT_OK=0\nSMF_EXIT_ERR_FATAL=95\nSMF_EXIT_ERR_CONFIG=96\n";
    node.put_image("/lib/svc/share/smf_include.sh", smf.as_bytes(), 0o444).unwrap();
}

/// Makes the node's own addresses.
fn network(node: &Node) -> String {
    let sysinfo = std::fs::read(node.path("/tmp/.sysinfo.json")).unwrap_or_default();
    let sysinfo: serde_json::Value = serde_json::from_slice(&sysinfo).unwrap_or_default();
    let admin = sysinfo["Admin IP"].as_str().unwrap_or("127.0.0.2");
    format!("ip link set lo up; ip address add {admin}/24 dev lo || true\n")
}

/// Runs lines of a shell on the node. These folders of this machine are seen there too. With a network of its own it
/// has the ports that a node has.
pub async fn run(
    node: &Node,
    seen: &[&Path],
    own_network: bool,
    env: &str,
    lines: &str,
) -> io::Result<Finished> {
    let program = program();
    let always: [&Path; 2] = [node.dir(), program.parent().unwrap_or(Path::new("/"))];
    let mut mounts = String::new();
    for dir in always.iter().chain(seen) {
        mounts.push_str(&format!("mkdir -p '.{0}'; mount --bind '{0}' '.{0}'\n", dir.display()));
    }
    for place in [VMINFOD, METHOD] {
        let shown = node.seen(place).map_err(io::Error::other)?;
        if shown != place {
            mounts.push_str(&format!("mount --bind '.{shown}' '.{place}'\n"));
        }
    }
    let file: PathBuf = node.dir().join("lines");
    std::fs::write(&file, lines)?;
    let script = format!(
        "set -e\nmount --make-rprivate /\ncd '{root}'\n\
         mkdir -p usr/bin usr/sbin machine/bin machine/lib lib lib64 dev proc tmp var/run var/svc/log etc/svc/volatile\n\
         mount --bind /usr/bin machine/bin; mount --bind /usr/lib machine/lib; mount --bind /usr/lib64 lib64\n\
         for it in /usr/lib/*-linux-gnu; do [ -e lib/${{it##*/}} ] || ln -s ../machine/lib/${{it##*/}} lib/; done\n\
         [ -e bin ] || ln -s usr/bin bin\n\
         (cd /usr/bin; ls) | sed 's|^|/machine/bin/|' | xargs ln -st usr/bin 2>/dev/null || true\n\
         {mounts}mount --rbind usr usr; mount -o remount,bind,ro usr\n\
         mount --rbind /dev dev; mount -t proc proc proc\n{network}\
         exec chroot . /usr/bin/env -i PATH=/usr/sbin:/usr/bin HUB_ROOT= {env} /bin/bash '{lines}'\n",
        root = node.root().display(),
        network = if own_network { network(node) } else { String::new() },
        lines = file.display(),
    );
    let own = if own_network { &["-n"][..] } else { &[] };
    let args = [&JAIL[..], own, &["bash", "-c", &script]].concat();
    process::run(Path::new("/usr/bin/unshare"), &args, LATE).await
}
