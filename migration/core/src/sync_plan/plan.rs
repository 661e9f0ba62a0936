// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Both sides and a number → what is to be done now.

use super::datasets::{Mode, Sent};
use super::side::{Row, Side, Token, snapshot_name};

/// What the zfs commands of both nodes can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// `receive -s` and `send -t`.
    pub resume: bool,
    /// A bookmark can be the base of an increment.
    pub bookmarks: bool,
    /// A stream has several snapshots or datasets, or properties (`-R`, `-p`, `-I`). Of encrypted datasets `zfs` makes
    /// none: each snapshot of each dataset is a stream of its own.
    pub packages: bool,
}

/// What to do. The acts of one plan belong to different datasets, and may be done at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Take the snapshot of all datasets in one command, recursively, on the sender.
    Snapshot(Vec<String>),
    /// Destroy these snapshots on the sender: they were not taken of all datasets at once.
    DropSnapshot(Vec<String>),
    /// Forget what was received in part, on the receiver.
    DropPartial(String),
    /// Destroy the dataset on the receiver: it has nothing in common with the sender's.
    DestroyDataset(String),
    /// Destroy these snapshots on the receiver, whose names would be taken.
    DestroySnapshots(Vec<String>),
    /// Send a stream.
    Send {
        /// Dataset and snapshot.
        to: String,
        /// What the receiver has already.
        base: Option<Base>,
        mode: Mode,
    },
    /// Go on with a stream that was cut.
    Resume {
        dataset: String,
        /// `receive_resume_token`.
        token: String,
    },
}

impl Act {
    /// Returns true if the sender's snapshots may be others after it: a stream takes its time.
    pub fn changes_sender(&self) -> bool {
        use Act::{DropSnapshot, Resume, Send, Snapshot};
        matches!(self, Snapshot(_) | DropSnapshot(_) | Send { .. } | Resume { .. })
    }

    /// Returns true if the receiver's datasets or snapshots are others after it.
    pub fn changes_receiver(&self) -> bool {
        !matches!(self, Act::Snapshot(_) | Act::DropSnapshot(_))
    }
}

/// What an increment starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// A snapshot; those between it and the end are sent too (`-I`).
    Snapshot(String),
    /// A bookmark (`-i`).
    Bookmark(String),
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A dataset of the VM is gone from the sender.
    #[error("{0} does not exist on the sending node")]
    Missing(String),
    /// The image is to be installed on the receiver first.
    #[error(
        "{dataset} is a clone, and the other node does not have the snapshot that it was made of"
    )]
    NoOrigin {
        dataset: String,
        /// The GUID of the snapshot.
        guid: u64,
    },
    /// A full stream would replace a copy that must not be replaced.
    #[error("{0} has no snapshot in common with the other node's")]
    NothingInCommon(String),
}

/// Returns what to do now so that the receiver has the snapshot `number` of each dataset; nothing if it has.
///
/// `may_restart`: the receiver's copy may be destroyed and sent anew. It may when the hidden target
/// receives, and never when a rollback sends back to the source.
pub fn plan(
    sent: &[Sent],
    from: &Side,
    to: &Side,
    number: u32,
    can: Capabilities,
    may_restart: bool,
) -> Result<Vec<Act>, Refusal> {
    if let Some(gone) = sent.iter().find(|it| !from.datasets.contains(&it.dataset)) {
        return Err(Refusal::Missing(gone.dataset.clone()));
    }
    let name = snapshot_name(number);
    let full = |it: &Sent| format!("{}@{name}", it.dataset);
    let has = |it: &Sent| from.of(&it.dataset).iter().any(|row| row.number == Some(number));
    let some = from.ours(|it| it == number);
    if some.is_empty() {
        return Ok(vec![Act::Snapshot(sent.iter().map(full).collect())]);
    }
    if !sent.iter().all(has) {
        return Ok(vec![Act::DropSnapshot(some)]);
    }
    let acts = sent.iter().map(|it| tree(it, from, to, &name, can, may_restart));
    Ok(acts.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// The next act for a dataset and what goes with it: a replicated stream that was cut may have brought the
/// dataset and not all that is below it.
fn tree(
    it: &Sent,
    from: &Side,
    to: &Side,
    name: &str,
    can: Capabilities,
    may_restart: bool,
) -> Result<Option<Act>, Refusal> {
    let mut names = vec![it.dataset.clone()];
    if it.mode == Mode::Replicate {
        let inside = format!("{}/", it.dataset);
        let below = from.datasets.iter().filter(|dataset| dataset.starts_with(&inside));
        // One that was made after the snapshot has to wait for the next.
        let has = |dataset: &&String| from.of(dataset).iter().any(|row| row.name == name);
        names.extend(below.filter(has).cloned());
        names.sort();
    }
    for part in &names {
        let one = Sent { dataset: part.clone(), mode: it.mode };
        let act = match dataset(&one, from, to, name, can, may_restart)? {
            None if !can.packages && may_restart => match gone(part, it, from, to) {
                Some(act) => act,
                None => continue,
            },
            None => continue,
            Some(Act::Send { to: goal, base: Some(base), mode: Mode::Replicate })
                if !is_base_of_all(&base, part, &names, from, to) =>
            {
                Act::Send { to: goal, base: Some(base), mode: Mode::Props }
            }
            Some(act) => act,
        };
        if let Act::Send {
            base: Some(Base::Snapshot(base)), mode: Mode::Props | Mode::Plain, ..
        } = &act
        {
            let younger = younger(base, part, from, to);
            if may_restart && !younger.is_empty() {
                return Ok(Some(Act::DestroySnapshots(younger)));
            }
        }
        return Ok(Some(act));
    }
    Ok(None)
}

/// What the receiver has and the sender has not, below a dataset of which both have the goal: a replicated stream says
/// so itself, others do not.
fn gone(part: &str, it: &Sent, from: &Side, to: &Side) -> Option<Act> {
    let ours = from.of(part);
    let is_ours = |row: &&Row| ours.iter().any(|own| own.guid == row.guid);
    let snapshots: Vec<String> =
        to.of(part).into_iter().filter(|row| !is_ours(row)).map(Row::full_name).collect();
    if !snapshots.is_empty() {
        return Some(Act::DestroySnapshots(snapshots));
    }
    let inside = format!("{part}/");
    let is_gone = |dataset: &&String| {
        it.mode == Mode::Replicate
            && dataset.starts_with(&inside)
            && !from.datasets.contains(dataset)
    };
    to.datasets.iter().filter(is_gone).min().cloned().map(Act::DestroyDataset)
}

/// The receiver's snapshots of a dataset that are younger than a base. `receive -F` of a replicated stream destroys
/// them everywhere, and of another stream not on every platform (`cannot receive incremental stream: most recent
/// snapshot does not match`).
fn younger(base: &str, dataset: &str, from: &Side, to: &Side) -> Vec<String> {
    let guid = from.of(dataset).into_iter().find(|row| row.full_name() == base).map(|row| row.guid);
    let theirs = to.of(dataset).into_iter().skip_while(|row| Some(row.guid) != guid);
    theirs.skip(1).map(Row::full_name).collect()
}

/// Returns true if a replicated stream from this base fits to everything below the dataset: the receiver has the base
/// of it too, or it was made after the base and the receiver does not have it. Otherwise the dataset is sent alone:
/// what is below has a base of its own.
fn is_base_of_all(base: &Base, dataset: &str, names: &[String], from: &Side, to: &Side) -> bool {
    let Base::Snapshot(base) = base else { return true };
    let base = base.rsplit('@').next().unwrap_or_default();
    let inside = format!("{dataset}/");
    let mut below = names.iter().filter(|name| name.starts_with(&inside));
    below.all(|name| match from.of(name).into_iter().find(|row| row.name == base) {
        Some(ours) => to.of(name).iter().any(|row| row.guid == ours.guid),
        None => !to.datasets.contains(name),
    })
}

/// The next act for one dataset.
fn dataset(
    it: &Sent,
    from: &Side,
    to: &Side,
    name: &str,
    can: Capabilities,
    may_restart: bool,
) -> Result<Option<Act>, Refusal> {
    let dataset = it.dataset.clone();
    let (ours, theirs) = (from.of(&dataset), to.of(&dataset));
    let Some(goal) = ours.iter().find(|row| row.name == name) else { return Ok(None) };
    if theirs.iter().any(|row| row.guid == goal.guid) {
        return Ok(None);
    }
    if let Some(token) = to.tokens.iter().find(|token| token.dataset == dataset) {
        return Ok(Some(resume(token, &ours, can)));
    }
    let is_theirs = |row: &&&Row| theirs.iter().any(|other| other.guid == row.guid);
    let before_goal: Vec<&Row> =
        ours.iter().take_while(|row| row.guid != goal.guid).copied().collect();
    if let Some(base) = before_goal.iter().rev().find(is_theirs) {
        // Those that are younger than the base go with the roll-back of `receive -F`.
        let older = theirs.iter().take_while(|row| row.guid != base.guid);
        let clashing: Vec<String> = older
            .filter(|row| ours.iter().any(|own| own.name == row.name && own.guid != row.guid))
            .map(|row| row.full_name())
            .collect();
        if !clashing.is_empty() {
            return Ok(Some(Act::DestroySnapshots(clashing)));
        }
        let mut after = ours.iter().skip_while(|row| row.guid != base.guid).skip(1);
        let next = after.next().filter(|_| !can.packages);
        let base = Some(Base::Snapshot(base.full_name()));
        return Ok(Some(send(it, next.unwrap_or(goal), base, can)));
    }
    // A stream from a bookmark has no children.
    let is_alone = !can.packages
        || !from.datasets.iter().any(|other| other.starts_with(&format!("{dataset}/")));
    let marks = from.bookmarks.iter().rev().filter(|mark| mark.dataset == dataset);
    let mut common = marks.filter(|mark| theirs.iter().any(|row| row.guid == mark.guid));
    if let Some(mark) = common.next().filter(|_| can.bookmarks && is_alone) {
        let base = Base::Bookmark(format!("{dataset}#{}", mark.name));
        let mode = if can.packages { Mode::Props } else { Mode::Plain };
        return Ok(Some(Act::Send { to: goal.full_name(), base: Some(base), mode }));
    }
    if !may_restart {
        return Err(Refusal::NothingInCommon(dataset));
    }
    if to.datasets.contains(&dataset) {
        return Ok(Some(Act::DestroyDataset(dataset)));
    }
    first(it, goal, &ours, from, to, can).map(Some)
}

/// The first stream of a dataset. Docker's begins with the oldest snapshot there is, so that those that
/// people made travel; a replicated one brings them along. One without properties begins with the oldest too, and with
/// the image's that it was made of.
fn first(
    it: &Sent,
    goal: &Row,
    ours: &[&Row],
    from: &Side,
    to: &Side,
    can: Capabilities,
) -> Result<Act, Refusal> {
    let oldest = ours.first().unwrap_or(&goal);
    if it.mode != Mode::Replicate {
        return Ok(send(it, oldest, None, can));
    }
    let origin = from.origins.iter().find(|(dataset, _)| *dataset == it.dataset);
    match origin.map(|(_, guid)| *guid) {
        Some(guid) if !to.has(guid) => Err(Refusal::NoOrigin { dataset: it.dataset.clone(), guid }),
        Some(guid) if !can.packages => {
            let image = from.snapshots.iter().find(|row| row.guid == guid);
            let base = image.map(|row| Base::Snapshot(row.full_name()));
            Ok(send(it, oldest, base, can))
        }
        None if !can.packages => Ok(send(it, oldest, None, can)),
        _ => Ok(send(it, goal, None, can)),
    }
}

/// Goes on with a stream whose snapshot is still there; what was received of another one is dropped.
fn resume(token: &Token, ours: &[&Row], can: Capabilities) -> Act {
    let dataset = token.dataset.clone();
    if can.resume && ours.iter().any(|row| row.guid == token.guid) {
        Act::Resume { dataset, token: token.text.clone() }
    } else {
        Act::DropPartial(dataset)
    }
}

fn send(it: &Sent, to: &Row, base: Option<Base>, can: Capabilities) -> Act {
    let mode = if can.packages { it.mode } else { Mode::Plain };
    Act::Send { to: to.full_name(), base, mode }
}
