// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Whether a VM's copy on this node may have been replaced on another one, without migration-agent having heard of it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::timeout;

use crate::cli::control::ask;
use crate::disk;

/// migration-agent has so long to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of its state file.
const LONGEST: usize = 32 << 20;

/// migration-agent of this node, as its state file and its socket show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    state_dir: PathBuf,
}

#[derive(Deserialize)]
struct File {
    open: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    vm: String,
}

impl Replaced {
    /// The one that has its state here.
    pub fn new(state_dir: PathBuf) -> Self {
        Self { state_dir }
    }

    /// Returns true if the state file names the VM as one of an open migration, and nothing answers on the socket: the
    /// migration may have gone on, on another node, and nobody has stopped and hidden the copy here. A file that
    /// cannot be read may name any.
    pub async fn may_be(&self, vm: &str) -> bool {
        self.names(vm).await && !self.answers().await
    }

    async fn names(&self, vm: &str) -> bool {
        let file = self.state_dir.join("memory.json");
        let read = disk::blocking(move || disk::read(&file, LONGEST)).await;
        match read {
            Some(Err(error)) if error.kind() == ErrorKind::NotFound => false,
            Some(Ok(text)) => serde_json::from_slice::<File>(&text).map_or(true, |file| {
                file.open.values().any(|entry| entry.vm.eq_ignore_ascii_case(vm))
            }),
            Some(Err(_)) | None => true,
        }
    }

    async fn answers(&self) -> bool {
        let socket = self.state_dir.join("control.sock");
        let asked = ask(&socket, "GET", "/status", None, "waiting_for");
        matches!(timeout(PATIENCE, asked).await, Ok(Ok(_)))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixListener;

    use super::*;

    const VM: &str = "0b4a4a3e-8b7c-4a09-9c3e-2a5d8f5e0c11";

    #[tokio::test] // W36
    async fn only_what_a_silent_migration_agent_has_open_may_have_been_replaced() {
        let open =
            format!(r#"{{"version": 1, "cn_uuid": "x", "open": {{"m": {{"vm": "{VM}"}}}}}}"#);
        for (file, socket, want) in [
            (None, None, false),
            (Some(open.as_str()), None, true),
            (Some(r#"{"version": 1, "open": {"m": {"vm": "another"}}}"#), None, false),
            (Some(r#"{"open": {}}"#), None, false),
            (Some("{"), None, true),
            (Some(open.as_str()), Some(r#"{"waiting_for": []}"#), false),
            (Some(open.as_str()), Some("{}"), true),
        ] {
            let dir = tempfile::tempdir().unwrap();
            if let Some(text) = file {
                std::fs::write(dir.path().join("memory.json"), text).unwrap();
            }
            if let Some(body) = socket {
                let listener = UnixListener::bind(dir.path().join("control.sock")).unwrap();
                drop(tokio::spawn(async move {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let mut asked = [0; 1024];
                    let _some = stream.read(&mut asked).await.unwrap();
                    let answer = format!("HTTP/1.0 200 OK\r\n\r\n{body}");
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }));
            }
            let replaced = Replaced::new(dir.path().to_owned());
            assert_eq!(replaced.may_be(VM).await, want, "{file:?} {socket:?}");
        }
    }
}
