// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Runs `zfs` and `zpool`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use daemon::command::{Call, CommandError, Commands, Output, Program};
use sdc_clients::quoted;
use tokio::sync::OnceCell;
use uuid::Uuid;

use super::cause::{Cause, cause};
use migration_core::properties;

/// How long a listing and a change may take (the deployed agent's limit).
const DEADLINE: Duration = Duration::from_secs(15 * 60);
/// A change that fails with "busy" is tried for about 3 s.
const TRIES: u32 = 30;
const PAUSE: Duration = Duration::from_millis(100);
/// So often a tree is listed of which a part goes meanwhile.
const TREE: u32 = 3;

/// What the node's `zfs` and pool can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Can {
    /// `receive -s`, `send -t`, and with them `send -nP` and `receive -x`.
    pub resume: bool,
    pub bookmarks: bool,
    pub encryption: bool,
    /// Limits of filesystems and of snapshots.
    pub limits: bool,
}

/// `zfs` did not do it.
#[derive(Debug, thiserror::Error)]
pub enum ZfsError {
    /// It could not be run to its end.
    #[error(transparent)]
    Run(#[from] CommandError),
    /// It refused.
    #[error("zfs {verb}: {message}")]
    Failed {
        verb: String,
        /// Its stderr, as one line.
        message: String,
    },
    /// What it printed is not what it prints.
    #[error("cannot parse what zfs {verb} printed: {}", quoted(line))]
    Odd { verb: &'static str, line: String },
}

impl ZfsError {
    /// Returns what it means.
    pub fn cause(&self) -> Cause {
        match self {
            ZfsError::Failed { message, .. } => cause(message),
            ZfsError::Run(_) | ZfsError::Odd { .. } => Cause::Other,
        }
    }
}

/// One property of a dataset or snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// The dataset or snapshot.
    pub of: String,
    pub name: String,
    /// Its exact value.
    pub value: String,
    /// `local`, `received`, `default`, `inherited from …` or `-`.
    pub source: String,
}

/// `zfs` and `zpool` of one node.
pub struct Zfs {
    commands: Arc<dyn Commands>,
    pool: String,
    can: OnceCell<Can>,
}

/// Arguments as the seam takes them.
pub fn args(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Returns true if the dataset is one of this VM's: its root, what is below, or a disk beside it. Every name that
/// zfs(8) allows is one; `@`, `#`, `%` and `,` make something else of it in a command.
pub fn is_of(dataset: &str, vm: Uuid) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.: /".contains(c);
    let own = dataset.split('/').nth(1).and_then(|part| part.strip_prefix(&vm.to_string()));
    let is_own = own.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    is_own && !dataset.starts_with('-') && dataset.chars().all(plain)
}

impl Zfs {
    /// The datasets of this pool.
    pub fn new(commands: Arc<dyn Commands>, pool: &str) -> Zfs {
        Zfs { commands, pool: pool.to_owned(), can: OnceCell::new() }
    }

    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// Returns what the node's `zfs` and pool can do.
    pub async fn can(&self) -> Result<Can, ZfsError> {
        let probe = async {
            let knows_tokens =
                self.get(&["receive_resume_token"], std::slice::from_ref(&self.pool), false).await;
            let knows_tokens = match knows_tokens {
                Ok(_) => true,
                Err(error) if error.cause() == Cause::Unknown => false,
                Err(error) => return Err(error),
            };
            Ok(Can {
                resume: knows_tokens && self.has_feature("extensible_dataset").await?,
                bookmarks: self.has_feature("bookmarks").await?,
                limits: self.has_feature("filesystem_limits").await?,
                encryption: self.has_feature("encryption").await?,
            })
        };
        self.can.get_or_try_init(|| probe).await.copied()
    }

    /// A feature that the pool does not know, or has disabled, is not there.
    async fn has_feature(&self, name: &str) -> Result<bool, ZfsError> {
        let words = args(&["get", &format!("feature@{name}"), &self.pool]);
        let output = self.raw(Program::Zpool, words).await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_on = |word| word == "enabled" || word == "active";
        Ok(output.status == 0 && text.split_whitespace().any(is_on))
    }

    /// Returns properties of these, with `below` also of everything below them, snapshots included. Only of those whose
    /// values no people write: a text is read with [`Zfs::text`].
    /// Fails with [`Cause::Absent`] if one of the names is not there.
    pub async fn get(
        &self,
        properties: &[&str],
        of: &[String],
        below: bool,
    ) -> Result<Vec<Property>, ZfsError> {
        let mut words = to_get(properties)?;
        if below {
            words.insert(1, "-r".to_owned());
        }
        words.extend(of.iter().cloned());
        rows(&self.read(words).await?)
    }

    /// Returns properties of the file systems and volumes of a tree. Only of those whose values no people write.
    pub async fn tree(&self, properties: &[&str], top: &str) -> Result<Vec<Property>, ZfsError> {
        let printed = self.over_tree(&to_get(properties)?, top).await?;
        rows(&String::from_utf8_lossy(&printed))
    }

    /// Runs a subcommand that reads for the file systems and volumes of a tree. What `zfs` does with `-r` reads all
    /// snapshots too, of which there may be tens of thousands.
    pub(super) async fn over_tree(&self, words: &[String], top: &str) -> Result<Vec<u8>, ZfsError> {
        let mut tries = 1;
        loop {
            let names = self.names(&["-r"], top).await?;
            match self.bytes(words.iter().cloned().chain(names).collect()).await {
                // One was destroyed since.
                Err(error) if error.cause() == Cause::Absent && tries < TREE => tries += 1,
                done => return done,
            }
        }
    }

    /// Returns a property whose value people may have written, byte for byte; none if the dataset is gone.
    pub async fn text(&self, property: &str, of: &str) -> Result<Option<Vec<u8>>, ZfsError> {
        match self.bytes(args(&["get", "-Hp", "-o", "value", property, of])).await {
            Ok(printed) => Ok(printed.strip_suffix(b"\n").map(<[u8]>::to_vec)),
            Err(error) if error.cause() == Cause::Absent => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns one property of each of these that is there.
    pub async fn each(
        &self,
        property: &str,
        of: &[String],
    ) -> Result<BTreeMap<String, String>, ZfsError> {
        let mut found = BTreeMap::new();
        for name in of {
            match self.get(&[property], std::slice::from_ref(name), false).await {
                Ok(rows) => found.extend(rows.into_iter().map(|row| (row.of, row.value))),
                Err(error) if error.cause() == Cause::Absent => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Returns the names of the file systems and volumes that are directly below a dataset.
    pub async fn children(&self, dataset: &str) -> Result<Vec<String>, ZfsError> {
        let mut names = self.names(&["-r", "-d", "1"], dataset).await?;
        names.retain(|name| name != dataset);
        Ok(names)
    }

    /// Lists file systems and volumes.
    async fn names(&self, how: &[&str], top: &str) -> Result<Vec<String>, ZfsError> {
        let shape = ["-t", "filesystem,volume", "-o", "name", top];
        let words = [&["list", "-H"], how, &shape].concat();
        Ok(self.read(args(&words)).await?.lines().map(str::to_owned).collect())
    }

    /// Returns the size of the stream of these arguments of `send`, in bytes; none where `zfs` cannot estimate it.
    pub async fn estimate(&self, send: &[String]) -> Result<Option<u64>, ZfsError> {
        if !self.can().await?.resume {
            return Ok(None);
        }
        let text = self.tried(send).await?;
        let size = text.lines().rev().find_map(|line| line.strip_prefix("size"));
        Ok(size.and_then(|rest| rest.trim().parse().ok()))
    }

    /// Returns the GUID of the snapshot that a resume token stands for; none if `zfs` cannot go on with it. The
    /// maker of the token chose the snapshot: `zfs` sends whichever of the pool it names.
    pub async fn token_guid(&self, token: &str) -> Option<u64> {
        let text = self.tried(&args(&["-t", token])).await.ok()?;
        let guid = text.lines().find_map(|line| line.trim().strip_prefix("toguid = 0x"))?;
        u64::from_str_radix(guid, 16).ok()
    }

    /// Returns what `zfs send` prints about a stream in a dry run.
    async fn tried(&self, send: &[String]) -> Result<String, ZfsError> {
        let mut words = args(&["send", "-n", "-P", "-v"]);
        words.extend(send.iter().cloned());
        self.read(words).await
    }

    /// Runs a subcommand that changes something; again while it fails with "busy".
    pub async fn change(&self, words: Vec<String>) -> Result<(), ZfsError> {
        let mut tries = 1;
        loop {
            match self.read(words.clone()).await {
                Err(error) if error.cause() == Cause::Busy && tries < TRIES => {
                    tries += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                done => return done.map(|_| ()),
            }
        }
    }

    /// Runs it once: what holds it does not go by itself.
    pub async fn remove_once(&self, words: Vec<String>) -> Result<(), ZfsError> {
        match self.read(words).await {
            Err(error) if error.cause() != Cause::Absent => Err(error),
            _ => Ok(()),
        }
    }

    /// The same for something that may be gone already.
    pub async fn remove(&self, words: Vec<String>) -> Result<(), ZfsError> {
        match self.change(words).await {
            Err(error) if error.cause() == Cause::Absent => Ok(()),
            done => done,
        }
    }

    async fn read(&self, words: Vec<String>) -> Result<String, ZfsError> {
        Ok(String::from_utf8_lossy(&self.bytes(words).await?).into_owned())
    }

    pub(super) async fn bytes(&self, words: Vec<String>) -> Result<Vec<u8>, ZfsError> {
        let verb = words.first().cloned().unwrap_or_default();
        let output = self.raw(Program::Zfs, words).await?;
        if output.status != 0 {
            return Err(ZfsError::Failed { verb, message: output.complaint() });
        }
        Ok(output.stdout)
    }

    async fn raw(&self, program: Program, words: Vec<String>) -> Result<Output, ZfsError> {
        Ok(self.commands.run(Call::new(program, words, DEADLINE)).await?)
    }
}

/// The words of `zfs get` for properties that no people write.
fn to_get(properties: &[&str]) -> Result<Vec<String>, ZfsError> {
    if let Some(text) = properties.iter().find(|name| !properties::is_word(name)) {
        return Err(ZfsError::Odd { verb: "get", line: (*text).to_owned() });
    }
    Ok(args(&["get", "-Hp", "-o", "name,property,value,source", &properties.join(",")]))
}

fn rows(text: &str) -> Result<Vec<Property>, ZfsError> {
    let row = |line: &str| {
        let mut parts = line.split('\t');
        let mut next = || parts.next().map(str::to_owned);
        let (of, name, value, source) = (next()?, next()?, next()?, next()?);
        Some(Property { of, name, value, source })
    };
    let odd = |line: &str| ZfsError::Odd { verb: "get", line: line.to_owned() };
    text.lines().map(|line| row(line).ok_or_else(|| odd(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_vms_own_datasets_are_its_own() {
        let vm: Uuid = "0b4a4a3e-8b7c-4a09-9c3e-2a5d8f5e0c11".parse().unwrap();
        for (name, want) in [
            ("zones/ID", true),
            ("zones/ID/data/x", true),
            ("zones/ID-disk0", true),
            ("zones/IDx", false),
            ("zones", false),
            ("zones/other/ID", false),
            ("zones/other", false),
            ("zones/ID@snapshot", false),
            ("zones/ID other", false),
            ("zones/ID-disk0/a b", true),
            ("zones/ID/data/a b/-x:y.z_", true),
            ("zones/ID/a,b", false),
            ("zones/ID/a%b", false),
            ("zones/ID/a\nb", false),
            ("", false),
        ] {
            assert_eq!(is_of(&name.replace("ID", &vm.to_string()), vm), want, "{name}");
        }
    }
}
