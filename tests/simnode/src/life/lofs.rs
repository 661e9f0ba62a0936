// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Mounts of a file over a file (`mount -F lofs`), which need no writing: they are gone after a boot.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::json;

use crate::error::NodeError;
use crate::files;
use crate::getopt::{Ended, Failed, Parsed};
use crate::node::Node;

/// What is mounted, by what it is mounted on.
type Mounts = BTreeMap<String, String>;

impl Node {
    fn lofs_file(&self) -> PathBuf {
        self.state_dir().join("lofs.json")
    }

    fn lofs(&self) -> Result<Mounts, NodeError> {
        let file = self.lofs_file();
        if file.exists() { files::read_json(&file) } else { Ok(Mounts::new()) }
    }

    pub(super) fn forget_lofs(&self) -> Result<(), NodeError> {
        files::remove_file(&self.lofs_file())
    }

    /// Returns the place of the file that a program finds at this place.
    pub fn seen(&self, place: &str) -> Result<String, NodeError> {
        Ok(self.lofs()?.remove(place).unwrap_or_else(|| place.to_owned()))
    }
}

/// `mount -F lofs FROM ON`, and `mount -p`, which lists what is mounted so.
pub(crate) fn mount(node: &Node, args: &[String]) -> Ended {
    let usage = || {
        Failed(1, "Usage: mount [-F FSType] [-V] [current_options] special mountpoint".to_owned())
    };
    let parsed = Parsed::read(args, "p", "F").map_err(|_| usage())?;
    let mut all = node.lofs()?;
    match (parsed.has('p'), parsed.value('F'), parsed.operands.as_slice()) {
        (true, None, []) => {
            Ok(all.iter().map(|(on, from)| format!("{from} - {on} lofs - no \n")).collect())
        }
        (false, Some("lofs"), [from, on]) => {
            let kind = |place: &str| node.path(place).metadata().map(|stat| stat.is_dir());
            match (kind(from), kind(on)) {
                (Err(_), _) => Err(Failed(32, format!("mount: {from}: No such file or directory"))),
                (_, Err(_)) => Err(Failed(32, format!("mount: Mount point {on} does not exist."))),
                (Ok(a), Ok(b)) if a != b => {
                    Err(Failed(32, format!("mount: {on}: Not a directory")))
                }
                _ if all.contains_key(on) => {
                    Err(Failed(32, format!("mount: {from} is already mounted or {on} is busy")))
                }
                _ => {
                    all.insert(on.clone(), from.clone());
                    files::write_json(&node.lofs_file(), &json!(all))?;
                    Ok(String::new())
                }
            }
        }
        _ => Err(usage()),
    }
}

/// `umount ON`.
pub(crate) fn umount(node: &Node, args: &[String]) -> Ended {
    let [on] = args else {
        return Err(Failed(1, "Usage: umount [-f] special | mount-point".to_owned()));
    };
    let mut all = node.lofs()?;
    if all.remove(on).is_none() {
        return Err(Failed(
            1,
            format!("umount: warning: {on} not in mnttab\numount: {on} not mounted"),
        ));
    }
    files::write_json(&node.lofs_file(), &json!(all))?;
    Ok(String::new())
}
