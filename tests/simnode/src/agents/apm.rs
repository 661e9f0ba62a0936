// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! apm, which installs the agents of a node. An upgrade uninstalls the old package first; nothing is rolled back; a
//! folder without package.json, in the place of a package, makes it crash.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::script::{self, AGENTS};
use crate::files;
use crate::getopt::{Ended, Failed, Said};
use crate::node::Node;

/// `apm install FILE…|uninstall NAME…|list`.
pub(crate) fn apm(node: &Node, args: &[String]) -> Said {
    let apm = Apm { node, modules: node.path(&format!("{AGENTS}/lib/node_modules")) };
    let usage =
        || Said::from(Ended::Err(Failed(1, "usage: apm install|uninstall|list".to_owned())));
    let Some((verb, operands)) = args.split_first() else { return usage() };
    let mut said = Said::default();
    for operand in operands {
        let done = match verb.as_str() {
            "install" => apm.install(Path::new(operand), &mut said.stdout),
            "uninstall" => apm.uninstall(operand, &mut said.stdout),
            _ => return usage(),
        };
        if let Err(what) = done {
            said.complain(&format!("{operand}: {what}"));
        }
    }
    if verb == "list" {
        apm.list(&mut said);
    }
    said
}

struct Apm<'a> {
    node: &'a Node,
    /// The folder of the packages.
    modules: PathBuf,
}

/// What apm reads of `package.json`.
struct Package {
    name: String,
    version: String,
    /// Name and path of each command.
    bin: Vec<(String, String)>,
    json: Value,
}

impl Package {
    /// Reads a package; one without package.json is a crash of apm.
    fn read(folder: &Path) -> Result<Package, String> {
        let text = std::fs::read_to_string(folder.join("package.json")).map_err(
            |_| "SyntaxError: Unexpected token u in JSON at position 0 (JSON.parse(undefined))",
        )?;
        let json: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let text = |key: &str| json[key].as_str().map(str::to_owned).ok_or(format!("no {key}"));
        let bin = json["bin"].as_object().into_iter().flatten();
        let bin =
            bin.map(|(name, path)| (name.clone(), path.as_str().unwrap_or_default().to_owned()));
        Ok(Package { name: text("name")?, version: text("version")?, bin: bin.collect(), json })
    }
}

fn io(what: &Path, error: std::io::Error) -> String {
    format!("{}: {error}", what.display())
}

impl Apm<'_> {
    fn install(&self, file: &Path, log: &mut String) -> Result<(), String> {
        for folder in ["tmp", "lib/node_modules", "bin", "smf", "etc"] {
            let folder = self.node.path(&format!("{AGENTS}/{folder}"));
            std::fs::create_dir_all(&folder).map_err(|error| io(&folder, error))?;
        }
        let temporary = self.node.path(&format!("{AGENTS}/tmp/apm-{}", std::process::id()));
        let done = self.unpack(file, &temporary).and_then(|folder| self.put(&folder, log));
        files::remove_tree(&temporary).map_err(|error| error.to_string())?;
        done
    }

    /// Returns the first folder of a package.
    fn unpack(&self, file: &Path, temporary: &Path) -> Result<PathBuf, String> {
        let into = temporary.join("package");
        std::fs::create_dir_all(&into).map_err(|error| io(&into, error))?;
        let file = file.to_string_lossy();
        let args = ["zxf", &file, "-C", &into.to_string_lossy()];
        let here = std::env::current_dir().map_err(|error| error.to_string())?;
        let done = script::run(self.node, Path::new("/usr/bin/tar"), &args, &here, &[]);
        let done = done.map_err(|error| error.to_string())?;
        if !done.status.success() {
            return Err(String::from_utf8_lossy(&done.stderr).into_owned());
        }
        let entries = std::fs::read_dir(&into).map_err(|error| io(&into, error))?;
        entries.flatten().map(|it| it.path()).find(|it| it.is_dir()).ok_or("no folder".to_owned())
    }

    fn put(&self, folder: &Path, log: &mut String) -> Result<(), String> {
        let package = Package::read(folder)?;
        let place = self.modules.join(&package.name);
        if place.exists() {
            self.uninstall(&package.name, log)?;
        }
        self.runs(&package, "preinstall", folder, log)?;
        std::fs::rename(folder, &place).map_err(|error| io(&place, error))?;
        for (name, path) in &package.bin {
            script::make_executable(&place.join(path)).map_err(|error| error.to_string())?;
            let link = self.link(name);
            let target = format!("../lib/node_modules/{}/{path}", package.name);
            if let Err(error) = std::os::unix::fs::symlink(target, &link) {
                // It goes on: a plain file stays where the link belongs.
                log.push_str(&format!("ERROR {}: {error}\n", link.display()));
            }
        }
        self.runs(&package, "postinstall", &place, log)
    }

    fn link(&self, name: &str) -> PathBuf {
        self.node.path(&format!("{AGENTS}/bin/{name}"))
    }

    fn uninstall(&self, name: &str, log: &mut String) -> Result<(), String> {
        let place = self.modules.join(name);
        let package = Package::read(&place)?;
        self.runs(&package, "preuninstall", &place, log)?;
        self.runs(&package, "postuninstall", &place, log)?;
        for (name, _) in &package.bin {
            let link = self.link(name);
            if link.symlink_metadata().is_ok_and(|it| it.is_symlink()) {
                std::fs::remove_file(&link).map_err(|error| io(&link, error))?;
            }
        }
        std::fs::remove_dir_all(&place).map_err(|error| io(&place, error))
    }

    /// Runs a script of the package in its folder.
    fn runs(
        &self,
        package: &Package,
        which: &str,
        folder: &Path,
        log: &mut String,
    ) -> Result<(), String> {
        let Some(path) = package.json["scripts"][which].as_str() else { return Ok(()) };
        let at = |folder: &str| script::seen(self.node, &format!("{AGENTS}{folder}"));
        let env = [
            ("npm_config_prefix", at("")),
            ("npm_config_smfdir", at("/smf")),
            ("npm_config_etc", at("/etc")),
            ("npm_config_dbdir", at("/db")),
            ("npm_package_name", package.name.clone()),
            ("npm_package_version", package.version.clone()),
        ];
        // By the path that it has on the node, which it may write down.
        let place = folder.strip_prefix(self.node.root()).unwrap_or(folder);
        let place = script::seen(self.node, &format!("/{}", place.display()));
        let (place, folder) = (Path::new(&place).join(path), Path::new(&place).to_owned());
        let done = script::run(self.node, &place, &[], &folder, &env);
        let done = done.map_err(|error| error.to_string())?;
        log.push_str(&String::from_utf8_lossy(&done.stdout));
        match done.status.success() {
            true => Ok(()),
            false => Err(format!(
                "{which}: {}: {}",
                done.status,
                String::from_utf8_lossy(&done.stderr).trim_end()
            )),
        }
    }

    fn list(&self, said: &mut Said) {
        let entries = std::fs::read_dir(&self.modules).into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> = entries.map(|it| it.path()).collect();
        folders.sort();
        for folder in folders {
            match Package::read(&folder) {
                Ok(it) => said.stdout.push_str(&format!("{} {}\n", it.name, it.version)),
                Err(what) => said.stderr.push_str(&format!("WARN {}: {what}\n", folder.display())),
            }
        }
    }
}
