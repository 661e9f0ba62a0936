// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a boot makes of the places of a node: the ramdisk is lost and made again, what is kept stays.

use std::path::Path;

use crate::error::NodeError;
use crate::files;
use crate::node::Node;
use crate::places::{Place, is_mixed, place};

/// The agents' manifests, which are those of the folder `site`: a mount on nodes of Triton.
pub const AGENTS_SMF: &str = "/opt/smartdc/agents/smf";
/// What it shows.
pub const SITE: &str = "/var/svc/manifest/site";

impl Node {
    /// Returns an error where the node's file system refuses to be written.
    pub fn check_writable(&self, path: &str) -> Result<(), NodeError> {
        match place(path, self.info().kind) {
            Place::Platform => {
                let refused = rustix::io::Errno::ROFS.into();
                Err(NodeError::io("write", &self.path(path), refused))
            }
            _ => Ok(()),
        }
    }

    /// Writes a file of the node, with its folders, as a program on it would: refused where that is read-only.
    pub fn put(&self, path: &str, text: &[u8], mode: u32) -> Result<(), NodeError> {
        self.check_writable(path)?;
        put(&self.path(path), text, mode)
    }

    /// Writes a file of the platform image, of which the ramdisk and `/usr` are made at each boot; `/usr` at once.
    pub fn put_image(&self, path: &str, text: &[u8], mode: u32) -> Result<(), NodeError> {
        put(&self.image_dir().join(path.trim_start_matches('/')), text, mode)?;
        put(&self.path(path), text, mode)
    }

    /// Makes what is mounted and made at each boot: the empty folders, and what the image has.
    pub(crate) fn lay_places(&self) -> Result<(), NodeError> {
        for folder in ["/etc/zones", "/zones", "/tmp", "/usr", SITE, "/opt/custom/smf"] {
            files::make_dir(&self.path(folder))?;
        }
        if self.image_dir().exists() {
            files::copy_tree(&self.image_dir(), &self.root())?;
        }
        let agents = self.path(AGENTS_SMF);
        if self.info().kind.is_triton() && agents.symlink_metadata().is_err() {
            files::make_dir(&self.path("/opt/smartdc/agents"))?;
            let shown = Path::new("../../..").join(SITE.trim_start_matches('/'));
            std::os::unix::fs::symlink(shown, &agents)
                .map_err(|error| NodeError::io("mount", &agents, error))?;
        }
        Ok(())
    }

    /// The power is gone: what is not kept is lost.
    pub(crate) fn lose_ramdisk(&self) -> Result<(), NodeError> {
        self.lose_below("/")
    }

    fn lose_below(&self, folder: &str) -> Result<(), NodeError> {
        let dir = self.path(folder);
        let read = |error| NodeError::io("read", &dir, error);
        for entry in std::fs::read_dir(&dir).map_err(read)? {
            let name = entry.map_err(read)?.file_name();
            let path = Path::new(folder).join(name).to_string_lossy().into_owned();
            let file = self.path(&path);
            let is_folder = file.symlink_metadata().is_ok_and(|stat| stat.is_dir());
            if is_folder && is_mixed(&path, self.info().kind) {
                self.lose_below(&path)?;
            } else if place(&path, self.info().kind) != Place::Kept {
                match is_folder {
                    true => files::remove_tree(&file)?,
                    false => files::remove_file(&file)?,
                }
            }
        }
        Ok(())
    }
}

fn put(file: &Path, text: &[u8], mode: u32) -> Result<(), NodeError> {
    files::make_dir(file.parent().unwrap_or(file))?;
    files::replace(file, text)?;
    std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(mode))
        .map_err(|error| NodeError::io("set the mode of", file, error))
}
