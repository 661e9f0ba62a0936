// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the watcher has to ask of zones' own file systems: it is asked where it may hang, and the
//! answer is taken when it comes. Must never ask anything in the watcher's own task.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use inotify::WatchDescriptor;
use tokio::time::Instant;

use super::super::{Signal, ZoneFile};
use super::{Armed, Meaning, all_files, is_link, mask};
use crate::walk::Haste;

/// Zones that are newly watched, each with signals of its own; more are looked at together.
const FEW: usize = 64;
/// A zone whose file system did not answer is asked again after this.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// What a zone's file system answered.
pub(super) enum Answer {
    /// The zone's own directories, each watched or not.
    Watched(String, Vec<(PathBuf, std::io::Result<WatchDescriptor>)>),
    /// Nothing, and it is to be asked again.
    Silent(String),
    /// A file of the zone was put there whole: a link.
    Link(String, ZoneFile),
}

impl Armed {
    /// Watches the directories of these zones, each with its zonepath. The ways to them are the
    /// node's own; what is below the zonepath is the zone's, and may hang.
    pub(super) fn arm_zones(&mut self, zones: Vec<(Arc<str>, Arc<str>)>) {
        if zones.is_empty() {
            return;
        }
        let mut asked: Vec<Vec<PathBuf>> = Vec::with_capacity(zones.len());
        for (_, zonepath) in &zones {
            let top = self.root.path(zonepath);
            let dirs = self.dirs_of(zonepath).into_iter();
            let (own, ways): (Vec<_>, Vec<_>) = dirs.partition(|dir| dir.starts_with(&top));
            for dir in ways {
                self.arm(&dir);
            }
            asked.push(own);
        }
        let (root, kernel) = (self.root.clone(), self.kernel.clone());
        let places = zones.iter().map(|(_, zonepath)| Arc::clone(zonepath)).collect();
        self.asked.spawn(async move {
            let watch = move |dir: &PathBuf| (dir.clone(), kernel.clone().add(dir, mask()));
            let each = move |_: &_, at: usize| {
                asked.get(at).into_iter().flatten().map(&watch).collect::<Vec<_>>()
            };
            let answers = root.walk(places, Haste::Now, each).await;
            let answer = |((zone, _), answer): ((Arc<str>, _), Result<_, _>)| match answer {
                Ok(dirs) => Answer::Watched(zone.to_string(), dirs),
                Err(_) => Answer::Silent(zone.to_string()),
            };
            zones.into_iter().zip(answers).map(answer).collect()
        });
    }

    /// Asks whether what was created is a link, where it is a zone's; says whether it is a zone's.
    pub(super) fn ask_for_link(&mut self, path: &Path, meanings: &[(String, Meaning)]) -> bool {
        let files: Vec<(String, ZoneFile)> = meanings
            .iter()
            .filter_map(|(zone, meaning)| match meaning {
                Meaning::File(file) => Some((zone.clone(), *file)),
                Meaning::Way => None,
            })
            .collect();
        let zonepath = files.first().and_then(|(zone, _)| self.zones.get(&**zone).cloned());
        let Some(zonepath) = zonepath else { return false };
        let (root, path) = (self.root.clone(), path.to_owned());
        self.asked.spawn(async move {
            // Where nothing is answered the sweep will find it.
            let is_one = root.on_files(&zonepath, move |_| is_link(&path)).await.unwrap_or(false);
            let links = files.into_iter().filter(|_| is_one);
            links.map(|(zone, file)| Answer::Link(zone, file)).collect()
        });
        true
    }

    /// Takes answers. A zone whose directories are watched only now gets signals, since what
    /// happened to its files before is unknown.
    pub(super) fn answered(&mut self, answers: Vec<Answer>) -> Vec<Signal> {
        let (mut signals, mut gone) = (Vec::new(), false);
        let watched = |answer: &&Answer| matches!(answer, Answer::Watched(..));
        let are_few = answers.iter().filter(watched).count() <= FEW;
        signals.extend((!are_few).then_some(Signal::Unseen));
        for answer in answers {
            match answer {
                Answer::Watched(zone, dirs) => {
                    for (dir, watched) in dirs {
                        self.note(&dir, watched);
                    }
                    gone |= !self.zones.contains_key(&*zone);
                    self.silent.remove(&zone);
                    signals.extend(all_files(&zone).into_iter().filter(|_| are_few));
                }
                Answer::Silent(zone) => {
                    self.silent.insert(zone, Instant::now() + ASK_AGAIN);
                }
                Answer::Link(zone, file) => signals.push(Signal::File(zone, file)),
            }
        }
        if gone {
            self.prune();
        }
        signals
    }

    /// Asks those again who did not answer.
    pub(super) fn ask_silent(&mut self) {
        let now = Instant::now();
        let due: Vec<String> = self
            .silent
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(zone, _)| zone.clone())
            .collect();
        let zonepath = |zone: String| {
            self.silent.remove(&zone);
            let (zone, zonepath) = self.zones.get_key_value(&*zone)?;
            Some((Arc::clone(zone), Arc::clone(zonepath)))
        };
        let zones = due.into_iter().filter_map(zonepath).collect();
        self.arm_zones(zones);
    }
}
