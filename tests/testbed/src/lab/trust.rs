// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Letting the lab's programs in, as an operator does: an authority, and a join token for each agent and for volapi.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Method;
use sdc_clients::Http;
use sdc_clients::http::Call;
use serde_json::{Value, json};

use super::asking::{OWN_AGENT, until};
use super::error::LabError;

/// A program may take so long to be let in.
const PATIENCE: Duration = Duration::from_secs(20);

/// Who is to be let in, by the service that runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Trust(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// A person does it.
    by_hand: bool,
    /// The service's socket for operators, once it runs.
    socket: Option<PathBuf>,
    /// Where those keep their keys who are to be let in: nodes by uuid, and volapi.
    dirs: BTreeMap<String, PathBuf>,
}

impl Trust {
    /// One that lets in, or leaves that to a person.
    pub(super) fn new(by_hand: bool) -> Trust {
        Trust(Arc::new(Mutex::new(Inner { by_hand, ..Inner::default() })))
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The service runs, with this socket for operators.
    pub(super) fn serves(&self, socket: PathBuf) {
        self.inner().socket = Some(socket);
    }

    /// This program runs, and has its key in this directory.
    pub(super) fn asks(&self, who: &str, dir: PathBuf) {
        self.inner().dirs.insert(who.to_owned(), dir);
    }

    /// Lets everybody in who is not, if the service runs.
    pub(super) async fn let_in(&self) -> Result<(), LabError> {
        let (socket, dirs) = {
            let inner = self.inner();
            (inner.socket.clone().filter(|_| !inner.by_hand), inner.dirs.clone())
        };
        let Some(socket) = socket.filter(|_| !dirs.values().all(|dir| is_in(dir))) else {
            return Ok(());
        };
        let service = Http::new(&format!("unix:{}", socket.display()), OWN_AGENT);
        let service = service.map_err(LabError::request("a client of the operators' socket"))?;
        let service = service.without_retries();
        let init = Call::new(Method::POST, &["trust", "init"]);
        match service.execute(init).await {
            Err(error) if error.status() != Some(409) => {
                return Err(LabError::request("making an authority")(error));
            }
            _ => {}
        }
        for (who, dir) in dirs.iter().filter(|(_, dir)| !is_in(dir)) {
            let is_for = match who.as_str() {
                "volapi" => json!("volapi"),
                cn => json!({ "cn": cn }),
            };
            let call = Call::new(Method::POST, &["trust", "tokens"])
                .json(&json!({ "for": is_for, "seconds": 3600 }));
            let made = service.execute(call).await.map_err(LabError::request("a join token"))?;
            let token: Value = made.json("a token").map_err(LabError::request("a join token"))?;
            let token = token["token"].as_str().unwrap_or_default();
            put(dir, token).map_err(LabError::io("writing a join token"))?;
        }
        for (who, dir) in &dirs {
            until(&format!("{who} is let in"), PATIENCE, async || Ok(is_in(dir))).await?;
        }
        Ok(())
    }
}

fn is_in(dir: &Path) -> bool {
    let text = std::fs::read(dir.join("identity.json")).unwrap_or_default();
    let held: Value = serde_json::from_slice(&text).unwrap_or_default();
    held["certificate"].is_string()
}

fn put(dir: &Path, token: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let mut file = std::fs::OpenOptions::new();
    let file = file.write(true).create(true).truncate(true).mode(0o600);
    file.open(dir.join("join-token"))?.write_all(token.as_bytes())
}
