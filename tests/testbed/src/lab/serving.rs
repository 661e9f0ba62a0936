// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The NFS server that a storage VM of the lab would run: nfs-ganesha, where it is installed.

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use rig::nfs::{self, Server};
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
