// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Encrypted datasets. Pure. zfs-fuse cannot encrypt, so nothing holds these rules to a real pool: they are
//! *believed*, after zfs-load-key(8), zfs-send(8) and zfs-receive(8) of OpenZFS and the texts of its libzfs.
//!
//! A dataset made or received below an encrypted one is encrypted with its key, unless the stream is raw: then it
//! keeps the key that it had, which this node does not have loaded.

use crate::datasets::{Dataset, Datasets, History, is_below, owner};
use crate::error::NodeError;

/// What `zfs get encryption` says of an encrypted dataset.
const CIPHER: &str = "aes-256-gcm";

impl Datasets {
    /// The dataset whose key encrypts this dataset or snapshot.
    pub(crate) fn key_of(&self, name: &str) -> Option<&Dataset> {
        self.rows.get(self.rows.get(owner(name))?.props.get("encryptionroot")?)
    }

    /// Returns true if its contents cannot be read or written now.
    pub(crate) fn is_locked(&self, name: &str) -> bool {
        self.key_of(name).is_some_and(|root| root.get("keystatus") != "available")
    }

    /// A value of the encryption of a dataset or snapshot.
    pub(crate) fn encryption(&self, name: &str, key: &str) -> String {
        let root = self.key_of(name);
        match (key, root) {
            ("encryption", None) => "off".to_string(),
            ("encryption", Some(_)) => CIPHER.to_string(),
            ("encryptionroot", Some(root)) => root.name.clone(),
            ("keystatus", Some(root)) => root.get("keystatus").to_string(),
            _ => "-".to_string(),
        }
    }

    /// Makes a dataset, with all that is below it, encrypted with a key of its own: as if it had been created with
    /// `-o encryption=on`.
    pub fn encrypt(&mut self, top: &str) {
        let inside = |row: &&mut Dataset| {
            !row.name.contains(['@', '#']) && (row.name == top || is_below(&row.name, top))
        };
        for row in self.rows.values_mut().filter(inside) {
            row.put("encryptionroot", top);
        }
        self.set_key(top, true);
    }

    fn set_key(&mut self, root: &str, is_loaded: bool) {
        if let Some(row) = self.rows.get_mut(root) {
            row.put("keystatus", if is_loaded { "available" } else { "unavailable" });
        }
    }

    /// The key of a new dataset's parent must be loaded.
    pub(crate) fn check_key(&self, name: &str) -> Result<(), NodeError> {
        let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
        let why = "encryption root's key is not loaded or provided";
        match self.is_locked(parent) {
            true => Err(NodeError::refused(format!("cannot create '{name}': {why}"))),
            false => Ok(()),
        }
    }

    /// A new dataset has the key of its parent.
    pub(crate) fn inherit_key(&mut self, name: &str) {
        let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
        let root = self.key_of(parent).map(|root| root.name.clone());
        if let (Some(root), Some(row)) = (root, self.rows.get_mut(name)) {
            row.put("encryptionroot", root);
        }
    }

    /// A dataset that came in a raw stream has its sender's key, which nobody has loaded here.
    pub(crate) fn keep_foreign_key(&mut self, name: &str) {
        self.encrypt(name);
        self.set_key(name, false);
    }

    /// `zfs load-key` and `zfs unload-key`.
    pub fn load_key(&mut self, name: &str, is_loaded: bool) -> Result<Vec<History>, NodeError> {
        let (verb, done) = if is_loaded { ("load", "already") } else { ("unload", "not") };
        let refused = |why: String| Err(NodeError::refused(format!("Key {verb} error: {why}")));
        self.need(name)?;
        match self
            .key_of(name)
            .map(|root| (root.name.clone(), root.get("keystatus") == "available"))
        {
            None => refused(format!("'{name}' is not encrypted.")),
            Some((root, _)) if root != name => {
                refused(format!("Keys must be {verb}ed for encryption root of '{name}' ({root})."))
            }
            Some((_, was)) if was == is_loaded => {
                refused(format!("Key {done} loaded for '{name}'."))
            }
            Some(_) => {
                self.set_key(name, is_loaded);
                Ok(Vec::new())
            }
        }
    }
}
