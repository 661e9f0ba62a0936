// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The list of agents that cn-agent sends to CNAPI. One folder without `image_uuid`, or one instance's file that is a
//! folder, and the whole list is given up.

use std::fs;

use super::script::AGENTS;
use crate::node::Node;

/// An agent as CNAPI hears of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    pub image_uuid: String,
    /// Its instance, if `etc/NAME` is there.
    pub uuid: Option<String>,
}

impl Node {
    /// Returns what cn-agent sends, or why it sends nothing.
    pub fn agents_for_cnapi(&self) -> Result<Vec<Listed>, String> {
        let modules = self.path(&format!("{AGENTS}/lib/node_modules"));
        let entries = fs::read_dir(&modules).map_err(|error| error.to_string())?;
        let mut names: Vec<String> =
            entries.flatten().map(|it| it.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        let read = |path: &std::path::Path| {
            let text = fs::read_to_string(path);
            let failed =
                |error| format!("Cannot get agents image versions: {}: {error}", path.display());
            text.map(|text| text.trim().to_owned()).map_err(failed)
        };
        let listed = names.into_iter().map(|name| {
            let image_uuid = read(&modules.join(&name).join("image_uuid"))?;
            let etc = self.path(&format!("{AGENTS}/etc/{name}"));
            let uuid = if etc.exists() { Some(read(&etc)?) } else { None };
            Ok(Listed { name, image_uuid, uuid })
        });
        listed.collect()
    }
}
