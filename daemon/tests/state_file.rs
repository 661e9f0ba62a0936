// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! State files of another version, of another node, and of a disk that fails.

use std::path::Path;
use std::sync::Arc;

use daemon::state_file::{State, StateFile};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;

const CN: &str = "564d0b8e-6099-7648-351e-877faf6c56f6";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Kept {
    #[serde(default)]
    told: Vec<String>,
    /// Which the version before did not have.
    #[serde(default)]
    since: Option<u64>,
}

impl State for Kept {
    const VERSION: u32 = 1;
    const UNWRITTEN: &str = "unwritten";

    fn is_same(&self, other: &Self) -> bool {
        self == other
    }
}

fn file(dir: &Path) -> StateFile {
    StateFile::new(dir, CN, Arc::new(Notify::new()))
}

#[tokio::test]
async fn files_of_the_version_before_and_after_are_read_or_count_as_lost_and_are_kept() {
    let of = |version: u64, cn: &str, more: Value| {
        let mut text = json!({"version": version, "cn_uuid": cn, "told": ["a"]});
        text.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        text.to_string()
    };
    let told = |since| Some(Kept { told: vec!["a".to_owned()], since });
    for (text, kept, why) in [
        // Of the version before, and of one that goes back after a later one has added a field.
        (of(1, CN, json!({})), told(None), ""),
        (of(1, CN, json!({"since": 7, "later": {"x": 1}})), told(Some(7)), ""),
        // A later layout, one without a version, another node's, and what is no such file.
        (of(2, CN, json!({})), None, "has version 2, not 1"),
        (of(0, CN, json!({})), None, "has version 0, not 1"),
        (of(1, "another", json!({})), None, "is the file of node another"),
        ("{".to_owned(), None, "is not a state file"),
        (String::new(), None, "is not a state file"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("memory.json"), &text).unwrap();
        let file = file(dir.path());
        let restored = file.restore::<Kept>("it waits").await;
        assert_eq!(restored, Some(kept.clone().unwrap_or_default()), "{text}");
        assert_eq!(file.is_damaged(), kept.is_none(), "{text}");
        assert_eq!(file.lost().is_some(), kept.is_none(), "{text}");
        assert!(file.sentence().unwrap_or_default().contains(why), "{text}: {:?}", file.sentence());
        if kept.is_none() {
            // Whoever goes back to the later version has its file.
            file.keep_damaged().await;
            assert_eq!(std::fs::read_to_string(dir.path().join("memory.damaged")).unwrap(), text);
        }
    }
}

#[tokio::test]
async fn a_file_that_the_disk_does_not_give_back_counts_as_lost_and_one_that_is_not_there_does_not()
{
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(file(dir.path()).restore::<Kept>("it waits").await, None);
    // A reading that fails as EIO does: there is something, and no bytes of it.
    std::fs::create_dir(dir.path().join("memory.json")).unwrap();
    let file = file(dir.path());
    assert_eq!(file.restore::<Kept>("it waits").await, Some(Kept::default()));
    assert!(file.is_damaged() && file.lost().is_some());
    assert!(!file.save(Kept::default(), &mut None).await);
    assert!(
        file.sentence().unwrap().contains("cannot write the state file"),
        "{:?}",
        file.sentence()
    );
}
