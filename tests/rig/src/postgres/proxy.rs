// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Stands between a store and its server, and cuts the connection at COMMIT.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

const SOCKET: &str = ".s.PGSQL.5432";

/// Where the next connection that commits is cut, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The server never gets the COMMIT.
    Before,
    /// The server's answer is lost.
    After,
    /// The COMMIT arrives only after the store has asked on another connection whether it happened.
    Late,
}

/// A listening proxy.
#[derive(Debug)]
pub struct Proxy {
    dir: TempDir,
    cut: Arc<Mutex<Option<Cut>>>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Starts one before the server whose socket is in `server`.
    pub fn start(server: &Path) -> Proxy {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join(SOCKET)).unwrap();
        let cut = Arc::new(Mutex::new(None));
        let (next, server) = (cut.clone(), server.join(SOCKET));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut pairs = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                pairs.spawn(pair(client, server.clone(), next.clone()));
            }
        });
        Proxy { dir, cut, _tasks: tasks }
    }

    /// The directory with its socket.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Cuts the next connection that commits.
    pub fn cut_next(&self, cut: Cut) {
        *self.cut.lock().unwrap() = Some(cut);
    }

    /// Whether the cut that was asked for is still to come.
    pub fn is_armed(&self) -> bool {
        self.cut.lock().unwrap().is_some()
    }
}

async fn pair(mut client: UnixStream, server: PathBuf, cut: Arc<Mutex<Option<Cut>>>) {
    // A server that is down refuses, and so does this.
    let Ok(mut server) = UnixStream::connect(server).await else { return };
    let (mut sent, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            read = client.read(&mut sent) => {
                let Ok(len @ 1..) = read else { return };
                // The whole statement: `READ COMMITTED` is none.
                let commits = sent[..len].windows(7).any(|it| it == b"COMMIT\0");
                let now = if commits { cut.lock().unwrap().take() } else { None };
                match now {
                    Some(Cut::Before) => return,
                    Some(Cut::After) => return drop(asked(&mut server, &sent[..len], &mut answered).await),
                    Some(Cut::Late) => {
                        drop(client);
                        // The other connection's question waits for this transaction, for up to 10 s.
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        return drop(asked(&mut server, &sent[..len], &mut answered).await);
                    }
                    None if server.write_all(&sent[..len]).await.is_err() => return,
                    None => {}
                }
            }
            read = server.read(&mut answered) => {
                let Ok(len @ 1..) = read else { return };
                if client.write_all(&answered[..len]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Sends a statement, and waits for an answer that nobody gets.
async fn asked(server: &mut UnixStream, sent: &[u8], answered: &mut [u8]) -> std::io::Result<()> {
    server.write_all(sent).await?;
    server.read(answered).await.map(drop)
}
