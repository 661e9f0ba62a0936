// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A zone of this node: what is seen of it, and what is done to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use daemon::Fields;
use daemon::command::{Call, CommandError, Commands, Program};
use serde_json::Value;

use super::copy;
use super::piece::{ASIDE, Folder, Piece};
use super::refusal::Refusal;

/// A zone stops and starts within this time.
const DEADLINE: Duration = Duration::from_secs(300);

/// Where a folder of the zone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is none.
    Absent,
    /// In its old place.
    Here,
    /// Renamed, and no link in its place.
    Aside,
    /// Moved: a link is in its place.
    Linked,
}

/// What is seen of a zone.
#[derive(Clone, Debug)]
pub struct Zone {
    pub uuid: String,
    pub runs: bool,
    /// `indestructible_zoneroot` is set.
    pub is_protected: bool,
    /// The datasets that are delegated to it.
    pub delegated: Vec<String>,
    /// Where its dataset `data` is mounted; none where there is no such dataset.
    pub dataset: Option<PathBuf>,
    /// There are records in its `/data`.
    pub has_records: bool,
    pub folders: Vec<(Folder, State)>,
}

impl Zone {
    /// Returns the name of the dataset that a reprovision keeps.
    pub fn data(&self) -> String {
        data(&self.uuid)
    }
}

fn data(zone: &str) -> String {
    format!("zones/{zone}/data")
}

/// Returns the words that ask zfs for one property.
fn property<'a>(key: &'a str, dataset: &'a str) -> [&'a str; 6] {
    ["get", "-H", "-o", "value", key, dataset]
}

/// Returns where the global zone sees a path of a zone.
pub fn inside(zone: &str, path: &Path) -> PathBuf {
    Path::new("/zones").join(zone).join("root").join(path.strip_prefix("/").unwrap_or(path))
}

/// This node.
pub struct Node<'a> {
    pub commands: &'a dyn Commands,
    /// Its `/`.
    pub root: PathBuf,
}

impl Node<'_> {
    async fn run(&self, program: Program, args: &[&str]) -> Result<String, CommandError> {
        self.feed(program, args, Vec::new()).await
    }

    async fn feed(
        &self,
        program: Program,
        args: &[&str],
        input: Vec<u8>,
    ) -> Result<String, CommandError> {
        let words = args.iter().map(|it| (*it).to_owned()).collect();
        let output =
            self.commands.run(Call::new(program, words, DEADLINE).with_input(input)).await?;
        match output.status {
            0 => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            _ => {
                let command = format!("{program} {}", args.join(" "));
                Err(CommandError::Exit { command, output })
            }
        }
    }

    fn file(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns where a path of the zone is, if no link leads out of the zone.
    fn within(&self, zone: &str, path: &Path) -> Result<PathBuf, Refusal> {
        let (root, place) =
            (self.file(&inside(zone, Path::new("/"))), self.file(&inside(zone, path)));
        // Without a root there is nothing that leads anywhere.
        let Ok(root) = root.canonicalize() else { return Ok(place) };
        let above = place.ancestors().skip(1).find_map(|above| above.canonicalize().ok());
        let is_inside = above.is_some_and(|it| it.starts_with(root));
        if is_inside { Ok(place) } else { Err(Refusal::Outside(place)) }
    }

    /// Returns the uuid of the node, as its sysinfo has it.
    pub fn uuid(&self) -> anyhow::Result<String> {
        let file = self.file(Path::new("/tmp/.sysinfo.json"));
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let sysinfo: Value =
            serde_json::from_str(&text).with_context(|| file.display().to_string())?;
        Ok(sysinfo["UUID"].as_str().context("sysinfo has no UUID")?.to_owned())
    }

    /// Looks at a zone; none where this node does not have it.
    pub async fn look(&self, piece: Piece, uuid: &str) -> anyhow::Result<Option<Zone>> {
        let text = match self.run(Program::Vmadm, &["get", uuid]).await {
            Ok(text) => text,
            Err(CommandError::Exit { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let vm: Value = serde_json::from_str(&text).with_context(|| format!("vmadm get {uuid}"))?;
        let delegated = vm["datasets"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let config = self.within(uuid, Path::new(piece.config()));
        let mut fields = match config {
            Ok(file) if !piece.config().is_empty() && file.exists() => Fields::load(&file)?,
            _ => Fields::empty(),
        };
        let folders = piece.folders(&mut fields)?.into_iter().map(|folder| {
            let state = self.state(uuid, &folder)?;
            Ok((folder, state))
        });
        let folders = folders.collect::<Result<Vec<_>, Refusal>>()?;
        let dataset = match self.run(Program::Zfs, &property("mountpoint", &data(uuid))).await {
            Ok(text) => Some(PathBuf::from(text.trim())),
            Err(CommandError::Exit { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        // In the new place as the zone sees it, in the old place, and beside that.
        let records = Path::new("/data").join(piece.records());
        let old = folders.iter().filter_map(|(Folder { from, to }, _)| {
            let rest = records.strip_prefix(to).ok()?;
            Some([from.join(rest), aside(from).join(rest)])
        });
        let mut places = old.flatten().chain([records.clone()]);
        let has_records =
            places.any(|path| self.within(uuid, &path).is_ok_and(|file| file.exists()));
        Ok(Some(Zone {
            uuid: uuid.to_owned(),
            runs: vm["state"] == "running",
            is_protected: vm["indestructible_zoneroot"] == true,
            delegated: delegated.map(str::to_owned).collect(),
            dataset,
            has_records,
            folders,
        }))
    }

    fn state(&self, zone: &str, folder: &Folder) -> Result<State, Refusal> {
        let place = self.within(zone, &folder.from)?;
        let found = place.symlink_metadata().ok();
        let is_aside = aside(&place).exists();
        Ok(match found {
            Some(found) if found.is_symlink() => State::Linked,
            Some(_) if is_aside => {
                return Err(Refusal::Both { two: aside(&folder.from), one: folder.from.clone() });
            }
            Some(_) => State::Here,
            None if is_aside => State::Aside,
            None => State::Absent,
        })
    }

    pub async fn protect(&self, zone: &str, protected: bool) -> anyhow::Result<()> {
        let change = serde_json::json!({ "indestructible_zoneroot": protected }).to_string();
        self.feed(Program::Vmadm, &["update", zone], change.into_bytes()).await?;
        Ok(())
    }

    pub async fn stop(&self, zone: &str) -> anyhow::Result<()> {
        self.run(Program::Vmadm, &["stop", zone]).await?;
        Ok(())
    }

    pub async fn start(&self, zone: &str) -> anyhow::Result<()> {
        self.run(Program::Vmadm, &["start", zone]).await?;
        Ok(())
    }

    pub async fn create_dataset(&self, zone: &str) -> anyhow::Result<()> {
        self.run(Program::Zfs, &["create", &data(zone)]).await?;
        Ok(())
    }

    /// Copies a folder of the stopped zone to its dataset, and compares both.
    pub async fn copy(&self, zone: &str, folder: &Folder) -> anyhow::Result<()> {
        let from = self.within(zone, &folder.from)?;
        let below = folder.to.strip_prefix("/data").unwrap_or(&folder.to);
        let place = self.run(Program::Zfs, &property("mountpoint", &data(zone))).await?;
        let top = Path::new("/").join(data(zone));
        if Path::new(place.trim()) != top || !self.file(&top).is_dir() {
            bail!(
                "{} is not mounted at {}: zfs inherit mountpoint and zfs mount it",
                data(zone),
                top.display()
            );
        }
        let top = self.file(&top);
        let to = top.join(below);
        let differs = daemon::disk::blocking(move || {
            if let Some(above) = to.parent() {
                fs::create_dir_all(above)?;
            }
            copy::copy(&from, &to)?;
            copy::difference(&from, &to)
        });
        let differs = differs.await.context("the copy was aborted")?;
        let differs = differs.with_context(|| format!("copy of {}", folder.from.display()))?;
        match differs {
            Some(what) => Err(Refusal::Differs { folder: folder.from.clone(), what }.into()),
            None => Ok(()),
        }
    }

    /// Puts a folder aside and a link to its new place where it was.
    pub fn link(&self, zone: &str, folder: &Folder) -> anyhow::Result<()> {
        let from = self.within(zone, &folder.from)?;
        if from.symlink_metadata().is_ok() {
            fs::rename(&from, aside(&from)).with_context(|| from.display().to_string())?;
        }
        std::os::unix::fs::symlink(&folder.to, &from).with_context(|| from.display().to_string())
    }

    /// Gives the dataset to the stopped zone. A mount point is set before: the global zone may not set it afterwards.
    pub async fn hand(&self, zone: &str) -> anyhow::Result<()> {
        let data = data(zone);
        if self.run(Program::Zfs, &property("zoned", &data)).await?.trim() != "on" {
            if self.run(Program::Zfs, &property("mounted", &data)).await?.trim() == "yes" {
                self.run(Program::Zfs, &["unmount", &data]).await?;
            }
            self.run(Program::Zfs, &["set", "mountpoint=/data", &data]).await?;
            self.run(Program::Zfs, &["set", "zoned=on", &data]).await?;
        }
        let add = format!("add dataset; set name={data}; end");
        self.run(Program::Zonecfg, &["-z", zone, &add]).await?;
        Ok(())
    }
}

fn aside(place: &Path) -> PathBuf {
    let mut name = place.as_os_str().to_owned();
    name.push(ASIDE);
    name.into()
}
