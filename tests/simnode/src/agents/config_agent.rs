// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! config-agent: reads `etc/config-agent.d` once, when it starts; a pass fills in the templates of each instance with the
//! metadata that SAPI has for it, where what is missing becomes an empty text, and runs the `post_cmd` of a changed file.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::script::{self, AGENTS};
use crate::error::NodeError;
use crate::files;
use crate::node::Node;

/// A running config-agent.
#[derive(Debug)]
pub struct ConfigAgent {
    /// Instances, and the folders with their manifests.
    instances: Vec<(String, Vec<String>)>,
}

/// What a pass did.
#[derive(Debug, Default)]
pub struct Pass {
    /// The files that were written.
    pub written: Vec<String>,
    /// What failed: the pass ends as a failure, and the other files are written all the same.
    pub failed: Vec<String>,
}

impl ConfigAgent {
    /// Starts one: later files in its folder are not seen.
    pub fn start(node: &Node) -> Result<ConfigAgent, NodeError> {
        let folder = node.path(&format!("{AGENTS}/etc/config-agent.d"));
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|it| it.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|it| it == "json"));
        paths.sort();
        let mut instances = Vec::new();
        for path in paths {
            let file: Value = files::read_json(&path)?;
            let folders = file["localManifestDirs"].as_array().into_iter().flatten();
            let folders = folders.filter_map(Value::as_str).map(str::to_owned);
            let instance = file["instance"].as_str().unwrap_or_default().to_owned();
            instances.push((instance, folders.collect()));
        }
        Ok(ConfigAgent { instances })
    }

    /// Writes what has changed; `config` is what SAPI answers for an instance, nothing for one that it does not know.
    pub fn pass(&self, node: &Node, config: impl Fn(&str) -> Option<Value>) -> Pass {
        let mut pass = Pass::default();
        for (instance, folders) in &self.instances {
            let Some(config) = config(instance) else {
                pass.failed.push(format!("instance {instance}: 404"));
                continue;
            };
            let mut metadata = config["metadata"].as_object().cloned().unwrap_or_default();
            metadata.insert("auto".to_owned(), auto(node, instance));
            for folder in folders {
                let folder = node.path(&format!("{folder}/sapi_manifests"));
                for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                    if let Err(what) =
                        write(node, &entry.path(), &Value::Object(metadata.clone()), &mut pass)
                    {
                        pass.failed.push(what);
                    }
                }
            }
        }
        pass
    }
}

/// What config-agent adds to the metadata by itself.
fn auto(node: &Node, instance: &str) -> Value {
    let sysinfo: Value = files::read_json(&node.path("/tmp/.sysinfo.json")).unwrap_or_default();
    serde_json::json!({
        "SERVER_UUID": node.cn_uuid(),
        "INSTANCE_UUID": instance,
        "ADMIN_IP": sysinfo["Admin IP"],
        "DATACENTER_NAME": sysinfo["Datacenter Name"],
        "ZONENAME": "global",
    })
}

/// Fills in `{{{key}}}` and `{{{auto.KEY}}}`; what is not there becomes empty.
pub fn fill(template: &str, metadata: &Value) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{{") {
        let Some((key, after)) = after.split_once("}}}") else { break };
        let value = key.split('.').fold(metadata, |value, key| &value[key]);
        text.push_str(before);
        match value {
            Value::String(value) => text.push_str(value),
            Value::Null => {}
            other => text.push_str(&other.to_string()),
        }
        rest = after;
    }
    text + rest
}

fn write(node: &Node, folder: &Path, metadata: &Value, pass: &mut Pass) -> Result<(), String> {
    let of = |error: std::io::Error| format!("{}: {error}", folder.display());
    let manifest: Value =
        files::read_json(&folder.join("manifest.json")).map_err(|error| error.to_string())?;
    let template = fs::read_to_string(folder.join("template")).map_err(of)?;
    let text = fill(&template, metadata);
    let place = manifest["path"].as_str().unwrap_or_default();
    let path = node.path(place);
    if fs::read_to_string(&path).is_ok_and(|known| known == text) {
        return Ok(());
    }
    fs::write(&path, text).map_err(of)?;
    pass.written.push(place.to_owned());
    if let Some(command) = manifest["post_cmd"].as_str() {
        // Its failure is only logged.
        let _ = script::run(node, &node.path(command), &[], &node.root(), &[]);
    }
    Ok(())
}
