// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where the programs of a node find things: from their configuration files, as far as they are there.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use daemon::command::{Paths, Program};
use daemon::http::url_of;
use daemon::{ConfigError, Fields};

/// The configurations of an installed node.
pub const INSTALLED: [&str; 5] = [
    "/opt/smartdc/agents/etc/vminfod.config.json",
    "/opt/smartdc/agents/etc/net-agent.config.json",
    "/opt/smartdc/agents/etc/vm-agent.config.json",
    "/opt/smartdc/agents/etc/migration-agent.config.json",
    "/opt/smartdc/migration-service/etc/config.json",
];

/// The programs that the product runs, as the configurations name them.
pub const PROGRAMS: [Program; 11] = [
    Program::Zoneadm,
    Program::Zonecfg,
    Program::Zfs,
    Program::Zpool,
    Program::Vmadm,
    Program::Kstat,
    Program::Sysevent,
    Program::Fswatcher,
    Program::Svcs,
    Program::Svcprop,
    Program::Zlogin,
];

/// A service, and the keys under which configurations have its address.
const SERVICES: [(Service, [&str; 2]); 5] = [
    (Service::Napi, ["napi.url", "napi_url"]),
    (Service::Vmapi, ["vmapi.url", "vmapi_url"]),
    (Service::Cnapi, ["cnapi.url", "cnapi_url"]),
    (Service::Imgapi, ["imgapi.url", "imgapi_url"]),
    (Service::Papi, ["papi.url", "papi_url"]),
];

/// A service of the data centre.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The networking API.
    Napi,
    /// The VM API.
    Vmapi,
    /// The compute node API.
    Cnapi,
    /// The image API.
    Imgapi,
    /// The package API.
    Papi,
}

/// Where things are.
#[derive(Clone, Debug)]
pub struct Place {
    /// The node's `/`.
    pub root: PathBuf,
    pub commands: Paths,
    /// Those of them that must be there: on a node all, below another root those that a configuration names.
    pub wanted: Vec<Program>,
    pub hub: String,
    /// Where migration-agent shows its status.
    pub migration_agent: String,
    /// The address of migration-service, if a configuration has one.
    pub front: Option<IpAddr>,
    /// vminfod's unix socket, if it has one.
    pub socket: Option<PathBuf>,
    /// The services that some configuration names.
    pub services: Vec<(Service, String)>,
}

impl Place {
    /// Reads it from these files. Of values that several files have, the first counts.
    pub fn read(files: &[PathBuf]) -> Result<Place, ConfigError> {
        let mut all = files.iter().map(|file| Fields::load(file)).collect::<Result<Vec<_>, _>>()?;
        let mut text = |key: &str| all.iter_mut().find_map(|fields| fields.optional_text(key));
        let root = text("root").map_or_else(|| PathBuf::from("/"), PathBuf::from);
        let listen = text("listen").and_then(|listen| listen.parse::<SocketAddr>().ok());
        let shown = text("status.listen").and_then(|listen| listen.parse::<SocketAddr>().ok());
        let front = text("service_url").and_then(|url| url.parse::<http::Uri>().ok());
        let front = front.and_then(|url| url.host()?.trim_matches(['[', ']']).parse().ok());
        let socket = text("socket.path").map(PathBuf::from);
        let named =
            SERVICES.map(|(service, keys)| (service, keys.iter().find_map(|key| text(key))));
        let services =
            named.into_iter().filter_map(|(service, url)| Some((service, url?))).collect();
        let named: Vec<(Program, String)> = PROGRAMS
            .into_iter()
            .filter_map(|program| Some((program, text(&format!("commands.{}", program.name()))?)))
            .collect();
        let wanted = match root == Path::new("/") {
            true => PROGRAMS.to_vec(),
            false => named.iter().map(|(program, _)| *program).collect(),
        };
        let commands = named
            .into_iter()
            .fold(Paths::default(), |paths, (program, path)| paths.with(program, path));
        let hub = listen.map_or_else(|| "http://127.0.0.1:9090".to_owned(), url_of);
        let migration_agent = shown.map_or_else(|| "http://127.0.0.1:5317".to_owned(), url_of);
        Ok(Place { root, commands, wanted, hub, migration_agent, front, socket, services })
    }

    /// Returns the path of a file of the node.
    pub fn file(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Returns the address of a service.
    pub fn service(&self, wanted: Service) -> Option<&str> {
        self.services.iter().find(|(service, _)| *service == wanted).map(|(_, url)| url.as_str())
    }
}

/// Returns those of the installed configurations that are there.
pub fn installed() -> Vec<PathBuf> {
    INSTALLED.iter().map(PathBuf::from).filter(|file| Path::exists(file)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_file_that_has_a_value_counts() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let files = [
            file(
                "vminfod.json",
                r#"{"root": "/n", "listen": "127.0.0.1:1", "commands": {"zfs": "/n/zfs"}}"#,
            ),
            file(
                "net-agent.json",
                r#"{"napi": {"url": "http://n"}, "vminfod": {"url": "http://v"}}"#,
            ),
            file("vm-agent.json", r#"{"vmapi_url": "http://m", "napi_url": "http://other"}"#),
        ];
        let place = Place::read(&files).unwrap();
        assert_eq!(place.hub, "http://127.0.0.1:1");
        assert_eq!(place.commands.of(Program::Zfs), Path::new("/n/zfs"));
        assert_eq!(place.commands.of(Program::Zoneadm), Path::new("/usr/sbin/zoneadm"));
        assert_eq!(place.wanted, [Program::Zfs]);
        assert_eq!(place.service(Service::Napi), Some("http://n"));
        assert_eq!(place.service(Service::Vmapi), Some("http://m"));
        assert_eq!(place.service(Service::Cnapi), None);
        assert_eq!(place.file("/etc/zones"), Path::new("/n/etc/zones"));
        assert!(Place::read(&[dir.path().join("absent.json")]).is_err());
    }
}
