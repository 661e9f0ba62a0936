// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a service keeps in a zone: whether it outlives the zone's next image, and whether it is there at all.
//!
//! A reprovision, which each update of a service is, makes the root of its zone anew. Only the delegated dataset
//! stays, which is mounted at `/data`.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::config::Fields;

/// The key of the configuration that says since when the records are in use. config-agent writes it from the metadata
/// `HUB_DATA_IN_USE` of the instance; it is empty where that is not set.
const IN_USE: &str = "data_in_use";

/// The socket of the zone's metadata, which each zone has and the global zone has not.
const OF_A_ZONE: &str = ".zonecontrol/metadata.sock";

/// The file of a service's records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// None: they are on a server.
    file: Option<PathBuf>,
    /// Since when they are in use, as SAPI says.
    in_use: Option<String>,
}

/// The records are gone.
#[derive(Debug, thiserror::Error)]
#[error(
    "SAPI says that the records of this instance are in use since {since}, and {} is not there: none are begun anew. \
     Is the delegated dataset mounted at /data (zfs list -o name,mounted,mountpoint)? To begin with none: \
     sapiadm update INSTANCE metadata.HUB_DATA_IN_USE=''", file.display())]
pub struct Gone {
    file: PathBuf,
    since: String,
}

impl Kept {
    /// Reads whether records are in use; `file` is theirs, none where they are on a server.
    pub fn read(fields: &mut Fields, file: Option<PathBuf>) -> Kept {
        let in_use = fields.optional_text(IN_USE).filter(|since| !since.is_empty());
        Kept { file, in_use }
    }

    /// Refuses to begin anew where records were in use, and says in the log where they do not outlive the next image.
    pub fn check(&self) -> Result<(), Gone> {
        if let (Some(file), Some(since)) = (&self.file, &self.in_use)
            && !file.exists()
        {
            return Err(Gone { file: file.clone(), since: since.clone() });
        }
        if let Some(why) = self.warning() {
            tracing::error!("{why}");
        }
        Ok(())
    }

    /// Returns why the records do not outlive the next image of the zone; none where they do.
    pub fn warning(&self) -> Option<String> {
        self.warning_below(Path::new("/"))
    }

    fn warning_below(&self, root: &Path) -> Option<String> {
        let file = self.file.as_deref()?;
        let is_lost = root.join(OF_A_ZONE).exists() && device(file)? == device(root)?;
        is_lost.then(|| {
            let file = file.display();
            format!(
                "{file} is on the file system of the zone's root: the next update of this zone destroys it. \
                 On the headnode, hub setup moves it to /data, which stays"
            )
        })
    }
}

/// The file system of a path, or of the nearest folder above it that is there.
fn device(path: &Path) -> Option<u64> {
    path.ancestors().find_map(|it| it.metadata().ok()).map(|found| found.dev())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(file: Option<&Path>, since: &str) -> Kept {
        let text = format!(r#"{{"data_in_use": "{since}"}}"#);
        Kept::read(&mut Fields::from_json(&text).unwrap(), file.map(Path::to_owned))
    }

    #[test] // Z1
    fn records_that_were_in_use_are_not_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("data/store.redb");
        assert!(kept(Some(&file), "").check().is_ok(), "a first start");
        assert!(kept(None, "2026-11-28").check().is_ok(), "records on a server");
        let gone = kept(Some(&file), "2026-11-28").check().unwrap_err().to_string();
        assert!(gone.contains("since 2026-11-28") && gone.contains("store.redb"), "{gone}");
        std::fs::create_dir(dir.path().join("data")).unwrap();
        assert!(kept(Some(&file), "2026-11-28").check().is_err(), "an empty /data");
        std::fs::write(&file, "records").unwrap();
        assert!(kept(Some(&file), "2026-11-28").check().is_ok());
    }

    #[test] // Z2
    fn records_on_the_file_system_of_a_zones_root_are_told_of() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("var/db/service/store.redb");
        let warning = |file: &Path| kept(Some(file), "").warning_below(root.path());
        assert_eq!(warning(&file), None, "this is no zone");
        std::fs::create_dir(root.path().join(".zonecontrol")).unwrap();
        std::fs::write(root.path().join(OF_A_ZONE), "").unwrap();
        let told = warning(&file).unwrap();
        assert!(told.contains("store.redb") && told.contains("hub setup"), "{told}");
        // Another file system; on a machine where it is the same one, nothing can be shown.
        let other = Path::new("/proc/sys/service/store.redb");
        assert_ne!(device(other), device(root.path()));
        assert_eq!(warning(other), None);
    }
}
