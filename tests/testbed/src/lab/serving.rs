// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The NFS server that a storage VM of the lab would run: nfs-ganesha, where it is installed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use rig::nfs::{self, Server};
use sdc_clients::Error;
use sdc_clients::http::{Call, Http};
use sdc_clients::vmapi::Vmapi;
use serde_json::{Map, Value};
use simnode::Node;

use super::error::LabError;

/// What it writes.
const TEXT: &[u8] = b"shared by VMs that mount this volume\n";

/// A directory of a storage VM, served where the volume says.
#[derive(Debug)]
pub(super) struct Serving {
    directory: PathBuf,
    exported: String,
    server: Server,
}

impl Serving {
    /// Serves what a volume exports as `exported` (`IP:PATH`) from its storage VM on this node.
    pub(super) async fn start(node: &Node, exported: &str) -> Result<Serving, LabError> {
        // In the zone, the path of what it exports is the name of its delegated dataset.
        let (_, dataset) = exported.split_once(":/").unwrap_or_default();
        let (directory, exported) = (node.directory(dataset)?, exported.to_owned());
        blocking(move || {
            std::fs::create_dir_all(&directory)?;
            let server = serve(&directory, &exported)?;
            Ok(Serving { directory, exported, server })
        })
        .await
    }

    /// A client writes a new file and reads it. Returns whether it read what it wrote, and the storage VM has that.
    pub(super) async fn is_shared(&self, name: &'static str) -> Result<bool, LabError> {
        let (exported, file) = (self.exported.clone(), self.directory.join(name));
        blocking(move || {
            nfs::write(&exported, name, TEXT)?;
            Ok(nfs::read(&exported, name)? == TEXT && std::fs::read(file)? == TEXT)
        })
        .await
    }

    /// The server dies, and nothing starts it again until `meanwhile` is over; then the storage VM is on `node`.
    pub(super) async fn without_server<T>(
        self,
        node: &Node,
        meanwhile: impl Future<Output = Result<T, LabError>>,
    ) -> Result<(Serving, T), LabError> {
        let Serving { exported, server, .. } = self;
        drop(server);
        let seen = meanwhile.await?;
        Ok((Serving::start(node, &exported).await?, seen))
    }
}

/// Runs the server of each storage VM that runs on one of these nodes, as the zone's boot starts it. Never returns.
pub(super) async fn keep(volapi: Http, vmapi: Vmapi, nodes: Vec<Node>) {
    let mut served = BTreeMap::new();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let Ok(running) = running(&volapi, &vmapi).await else { continue };
        served.retain(|place, _| running.contains(place));
        for place in
            running.into_iter().filter(|place| !served.contains_key(place)).collect::<Vec<_>>()
        {
            let (cn, exported) = &place;
            let Some(node) = nodes.iter().find(|node| node.cn_uuid() == cn) else { continue };
            if let Ok(serving) = Serving::start(node, exported).await {
                served.insert(place, serving);
            }
        }
    }
}

/// Returns the node of each storage VM that runs, and what its volume exports.
async fn running(volapi: &Http, vmapi: &Vmapi) -> Result<BTreeSet<(String, String)>, Error> {
    let reply = volapi.execute(Call::get(&["volumes"])).await?;
    let volumes: Vec<Map<String, Value>> = reply.json("the volumes")?;
    let text =
        |of: &Map<String, Value>, key: &str| of.get(key).and_then(Value::as_str).map(str::to_owned);
    let mut running = BTreeSet::new();
    for volume in volumes {
        let (Some(vm), Some(path)) = (text(&volume, "vm_uuid"), text(&volume, "filesystem_path"))
        else {
            continue;
        };
        let record = vmapi.record(&vm).await?;
        if let (Some("running"), Some(cn)) =
            (text(&record, "state").as_deref(), text(&record, "server_uuid"))
        {
            running.insert((cn, path));
        }
    }
    Ok(running)
}

fn serve(directory: &std::path::Path, exported: &str) -> io::Result<Server> {
    let (address, path) = exported.split_once(':').unwrap_or_default();
    let address: Ipv4Addr = address.parse().map_err(io::Error::other)?;
    Server::start(address, directory, path)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, LabError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(io::Error::other);
    done.flatten().map_err(LabError::io("the NFS server of a storage VM"))
}
