// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Small JSON files that are replaced as a whole, and timestamps as they are written in them.
//! All functions here block: async code calls them through [`blocking`].

use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::process::Pid;
use serde::Serialize;

/// The most entries of a program's own directory that are looked at.
const ENTRIES: usize = 10_000;

/// Reads a regular file of at most `most` bytes. Never waits for another process, as the opening of
/// a FIFO does.
pub fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(io::Error::other(format!("it is larger than {most} bytes")));
    }
    Ok(bytes)
}

/// Makes a directory that only its owner may look into. One that is there keeps its mode.
pub fn make_private(dir: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Makes a program's own directory, into which only its owner may look from now on. What writers that were killed left
/// in it goes.
pub fn own_dir(dir: &Path) -> io::Result<()> {
    make_private(dir)?;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))?;
    for entry in std::fs::read_dir(dir)?.take(ENTRIES).flatten() {
        let path = entry.path();
        let is_gone = |pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
        if writer(&path).is_some_and(is_gone) {
            // One that stays is no fault of the program that starts.
            let _gone = std::fs::remove_file(&path);
        }
    }
    Ok(())
}

/// Returns the process that writes, or wrote, this temporary file.
fn writer(path: &Path) -> Option<Pid> {
    let (before, pid) = path.file_name()?.to_str()?.rsplit_once('.')?;
    before.ends_with(".new").then(|| pid.parse().ok())?.and_then(Pid::from_raw)
}

/// Writes `content` as JSON to a temporary file, flushes it to the disk and renames it to `path`. Only the owner may
/// read it.
/// Returns the error of the file system, or says that the content has more than `most` bytes; the old file is then
/// unchanged.
pub fn write_atomically<T: Serialize>(path: &Path, content: &T, most: usize) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(content)?;
    text.push(b'\n');
    if text.len() > most {
        return Err(io::Error::other(format!("it would be larger than {most} bytes")));
    }
    if let Some(dir) = path.parent() {
        make_private(dir)?;
    }
    let temporary = path.with_extension(format!("new.{}", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&temporary)?;
    file.write_all(&text)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    if let Some(dir) = path.parent() {
        std::fs::File::open(dir)?.sync_all()?;
    }
    Ok(())
}

/// Runs `work` on a thread that may block. Returns none only if it panicked.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

/// Serializes timestamps as ISO 8601 text.
pub mod stamp {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// Writes the text.
    pub fn serialize<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(at)
    }

    /// Reads the text.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }

    /// Timestamps that may be absent.
    pub mod optional {
        use jiff::Timestamp;
        use serde::{Deserialize, Deserializer, Serializer, de::Error};

        /// Writes the text, or null.
        pub fn serialize<S: Serializer>(at: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
            match at {
                Some(at) => to.collect_str(at),
                None => to.serialize_none(),
            }
        }

        /// Reads the text, or null.
        pub fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<Timestamp>, D::Error> {
            let text = Option::<String>::deserialize(from)?;
            text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn what_an_agent_keeps_is_its_owners() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("agent");
        std::fs::create_dir(&dir).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_ne!(mode(&dir), 0o700, "as an earlier version made it");
        own_dir(&dir).unwrap();
        let file = dir.join("memory.json");
        write_atomically(&file, &1, 100).unwrap();
        assert_eq!((mode(&dir), mode(&file)), (0o700, 0o600));
    }

    #[test]
    fn what_killed_writers_left_goes_at_a_start() {
        let dir = tempfile::tempdir().unwrap();
        // No system gives a process such a number.
        let gone = i32::MAX;
        let left = format!("memory.new.{gone}");
        let stay = [
            format!("memory.new.{}", std::process::id()),
            "memory.new.bak".to_owned(),
            format!("memory.{gone}"),
        ];
        for name in stay.iter().chain([&left]) {
            std::fs::write(dir.path().join(name), "half").unwrap();
        }
        own_dir(dir.path()).unwrap();
        assert!(!dir.path().join(left).exists());
        assert!(stay.iter().all(|name| dir.path().join(name).exists()));
    }

    #[test]
    fn reads_only_regular_files_of_a_bounded_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        assert_eq!(read(&path, 3).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, "abc").unwrap();
        assert_eq!(read(&path, 3).unwrap(), b"abc");
        let error = |path: &Path| read(path, 2).unwrap_err().to_string();
        assert_eq!(error(&path), "it is larger than 2 bytes");
        assert_eq!(error(dir.path()), "it is not a regular file");
        assert_eq!(error(Path::new("/dev/zero")), "it is not a regular file");
        let fifo = dir.path().join("fifo");
        let kind = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
        assert_eq!(error(&fifo), "it is not a regular file");
    }
}
