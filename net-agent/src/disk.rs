// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Small JSON files that are replaced as a whole, and timestamps as they are written in them.
//! All functions here block: async code calls them through [`blocking`].

use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;

/// Writes `content` as JSON to a temporary file, flushes it to the disk and renames it to `path`.
///
/// # Errors
/// Returns the error of the file system; the old file is then unchanged.
pub(crate) fn write_atomically<T: Serialize>(path: &Path, content: &T) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let temporary = path.with_extension(format!("new.{}", std::process::id()));
    let mut file = std::fs::File::create(&temporary)?;
    file.write_all(&serde_json::to_vec_pretty(content)?)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    if let Some(dir) = path.parent() {
        std::fs::File::open(dir)?.sync_all()?;
    }
    Ok(())
}

/// Runs `work` on a thread that may block. Returns none only if it panicked.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

/// Serializes timestamps as ISO 8601 text.
pub(crate) mod stamp {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(at)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }

    pub(crate) mod optional {
        use jiff::Timestamp;
        use serde::{Deserialize, Deserializer, Serializer, de::Error};

        pub(crate) fn serialize<S: Serializer>(
            at: &Option<Timestamp>,
            to: S,
        ) -> Result<S::Ok, S::Error> {
            match at {
                Some(at) => to.collect_str(at),
                None => to.serialize_none(),
            }
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<Timestamp>, D::Error> {
            let text = Option::<String>::deserialize(from)?;
            text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
        }
    }
}
