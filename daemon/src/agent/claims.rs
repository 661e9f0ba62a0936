// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What an operator has to decide, and has decided, about this machine: that it is the node although a second machine
//! has its uuid, and which nodes it was before, under another uuid (a new main board). Kept in `claims.json` of the
//! state directory.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::census::{Census, SecondMachine};
use super::gate::Gate;
use crate::disk::{self, stamp};
use crate::log::{AUDIT, chain};

/// Bytes of the file.
const LONGEST: usize = 1 << 20;
/// More main boards than any machine has had.
const MOST: usize = 16;

/// Who has claimed a node, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Claim {
    by: String,
    #[serde(with = "stamp")]
    at: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Decided {
    /// The second machine that was seen, until an operator decides.
    #[serde(default)]
    second: Option<SecondMachine>,
    /// The second machine of which an operator said that this one is the node.
    #[serde(default)]
    refuted: Option<SecondMachine>,
    /// The nodes that this machine was.
    #[serde(default)]
    nodes: BTreeMap<String, Claim>,
}

/// Why a node is not claimed.
#[derive(Debug, thiserror::Error)]
pub enum Unclaimed {
    /// It is this node, and no second machine claims it.
    #[error("no second machine with this node's uuid was seen: there is nothing to decide")]
    NoSecondMachine,
    /// The old node exists for CNAPI.
    #[error(
        "CNAPI knows node {0}: where it is this machine's old record, remove it there, or claim it with --really"
    )]
    Known(String),
    /// CNAPI does not say.
    #[error("CNAPI does not say whether it knows node {node} ({why}): claim it with --really")]
    NoAnswer {
        node: String,
        /// Why not.
        why: String,
    },
    /// More than any machine has been.
    #[error("{MOST} nodes are claimed already")]
    TooMany,
    /// The file system refused.
    #[error("cannot save the claim: {0}")]
    Unkept(#[from] io::Error),
}

/// The claims. The lock is held for a few instructions and never over an await.
#[derive(Debug)]
pub struct Claims {
    path: PathBuf,
    kept: Mutex<Decided>,
}

impl Claims {
    /// The claims of this state directory.
    pub fn new(state_dir: &Path) -> Self {
        Self { path: state_dir.join("claims.json"), kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Decided> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what was seen and decided in earlier runs. Blocks for one small file.
    pub(super) fn restore(&self, gate: &Gate) {
        let read = disk::read(&self.path, LONGEST)
            .and_then(|bytes| Ok(serde_json::from_slice::<Decided>(&bytes)?));
        match read {
            Ok(kept) => {
                gate.restore(kept.second.clone(), kept.refuted.clone());
                *self.kept() = kept;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let (path, reason) = (self.path.display(), chain(&error));
                tracing::error!(%path, reason, "cannot read the operator's claims: claim each node again");
            }
        }
    }

    /// Keeps which second machine an operator has to decide about: a restart beside a CNAPI that does not answer must
    /// not forget it. Blocks for one small file where that has changed.
    pub(super) fn keep_second(&self, gate: &Gate) {
        let second = gate.undecided();
        if self.kept().second != second
            && let Err(error) = self.keep(|kept| kept.second = second)
        {
            let (path, reason) = (self.path.display(), chain(&error));
            tracing::error!(%path, reason, "cannot save that there is a second machine: a restart may forget it");
        }
    }

    /// Returns true if this machine was that node.
    pub fn has(&self, node: &str) -> bool {
        self.kept().nodes.contains_key(node)
    }

    /// An operator says that this machine is, or was, this node. `really`: also where CNAPI knows the old node.
    pub async fn claim(
        &self,
        gate: &Gate,
        census: Option<&Census>,
        (node, by): (&str, &str),
        really: bool,
    ) -> Result<(), Unclaimed> {
        if node == gate.cn_uuid() {
            let refuted = gate.refute().ok_or(Unclaimed::NoSecondMachine)?;
            self.keep(|kept| (kept.second, kept.refuted) = (None, Some(refuted)))?;
        } else {
            if !really {
                unknown(census, node).await?;
            }
            if self.kept().nodes.len() >= MOST {
                return Err(Unclaimed::TooMany);
            }
            let claim = Claim { by: by.to_owned(), at: crate::wall::now() };
            self.keep(|kept| kept.nodes.insert(node.to_owned(), claim))?;
        }
        tracing::warn!(target: AUDIT, audit = true, node, by, really, "the operator claimed a node for this machine");
        Ok(())
    }

    fn keep<T>(&self, change: impl FnOnce(&mut Decided) -> T) -> io::Result<()> {
        let mut kept = self.kept();
        let mut changed = kept.clone();
        change(&mut changed);
        disk::write_atomically(&self.path, &changed, LONGEST)?;
        *kept = changed;
        Ok(())
    }
}

/// Checks that CNAPI does not know the node.
async fn unknown(census: Option<&Census>, node: &str) -> Result<(), Unclaimed> {
    let no_answer = |why: String| Unclaimed::NoAnswer { node: node.to_owned(), why };
    let census = census.ok_or_else(|| no_answer("none is configured".to_owned()))?;
    match census.knows(node).await {
        Ok(false) => Ok(()),
        Ok(true) => Err(Unclaimed::Known(node.to_owned())),
        Err(error) => Err(no_answer(chain(&error))),
    }
}
