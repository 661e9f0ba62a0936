// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A sync that is played to its end on what both sides show, while nothing is done.

use super::act::{Act, Base, Capabilities, Refusal};
use super::datasets::{Mode, Sent, is_below};
use super::plan::plan;
use super::side::{Row, Side};

/// No plan is made so often: a tree that needs more is not known to end.
const MOST_PLANS: usize = 10_000;

/// Returns all that a sync to this number will do, or why it cannot be done: each plan is made of what the acts of the
/// one before leave, as the sync itself makes it.
pub fn rehearse(
    sent: &[Sent],
    from: &Side,
    to: &Side,
    number: u32,
    can: Capabilities,
) -> Result<Vec<Act>, Refusal> {
    let (mut from, mut to) = (from.clone(), to.clone());
    let (mut all, mut last): (Vec<Act>, Vec<Act>) = (Vec::new(), Vec::new());
    for _ in 0..MOST_PLANS {
        let acts = plan(sent, &from, &to, number, can, true)?;
        if acts.is_empty() {
            return Ok(all);
        }
        if acts == last {
            break;
        }
        for act in &acts {
            may_go(act, &to)?;
            play(act, number, &mut from, &mut to);
        }
        all.extend(acts.iter().cloned());
        last = acts;
    }
    Err(Refusal::Endless)
}

/// What somebody holds cannot be destroyed.
fn may_go(act: &Act, to: &Side) -> Result<(), Refusal> {
    let goes = |name: &&String| match act {
        Act::DestroySnapshots(names) => names.contains(name),
        Act::DestroyDataset(top) => {
            let dataset = name.split('@').next().unwrap_or_default();
            dataset == top || is_below(dataset, top)
        }
        _ => false,
    };
    match to.held.iter().find(goes) {
        Some(name) => Err(Refusal::Held(name.clone())),
        None => Ok(()),
    }
}

/// Makes of both sides what an act makes of them.
pub fn play(act: &Act, number: u32, from: &mut Side, to: &mut Side) {
    let full = |row: &Row| row.full_name();
    match act {
        Act::Snapshot(names) => snapshot(names, number, from, to),
        Act::DropSnapshot(names) => from.snapshots.retain(|row| !names.contains(&full(row))),
        Act::DestroySnapshots(names) => to.snapshots.retain(|row| !names.contains(&full(row))),
        Act::DropPartial(dataset) => to.tokens.retain(|token| token.dataset != *dataset),
        Act::DestroyDataset(top) => {
            let stays = |name: &str| name != top && !is_below(name, top);
            to.datasets.retain(|name| stays(name));
            to.snapshots.retain(|row| stays(&row.dataset));
            to.tokens.retain(|token| stays(&token.dataset));
            to.origins.retain(|(name, _)| stays(name));
        }
        Act::Rename { from: old, to: new } => rename(to, old, new),
        Act::Promote(clone) => promote(to, clone),
        Act::Send { to: goal, base, mode } => send(goal, base.as_ref(), *mode, from, to),
        Act::Resume { dataset, .. } => {
            let Some(at) = to.tokens.iter().position(|it| it.dataset == *dataset) else { return };
            let guid = to.tokens.remove(at).guid;
            to.snapshots.extend(from.snapshots.iter().find(|row| row.guid == guid).cloned());
        }
    }
}

/// `snapshot -r`: what is below has it too.
fn snapshot(names: &[String], number: u32, from: &mut Side, to: &Side) {
    let mut free = u64::MAX;
    for full in names {
        let (top, name) = full.split_once('@').unwrap_or((full, ""));
        let of: Vec<String> =
            from.datasets.iter().filter(|it| *it == top || is_below(it, top)).cloned().collect();
        for dataset in of {
            while from.has(free) || to.has(free) {
                free -= 1;
            }
            let (name, number) = (name.to_owned(), Some(number));
            from.snapshots.push(Row { dataset, name, guid: free, number, ..Row::default() });
        }
    }
}

fn rename(side: &mut Side, old: &str, new: &str) {
    let names = side.datasets.iter_mut();
    let names = names
        .chain(side.snapshots.iter_mut().map(|row| &mut row.dataset))
        .chain(side.tokens.iter_mut().map(|token| &mut token.dataset))
        .chain(side.origins.iter_mut().map(|(name, _)| name));
    for name in names {
        if let Some(rest) = name.strip_prefix(old).filter(|it| it.is_empty() || it.starts_with('/'))
        {
            *name = format!("{new}{rest}");
        }
    }
}

/// The clone gets what it was made of, and the snapshots before that.
fn promote(side: &mut Side, clone: &str) {
    let origin_of = |side: &Side, of: &str| {
        side.origins.iter().find(|(name, _)| name == of).map(|(_, guid)| *guid)
    };
    let Some(guid) = origin_of(side, clone) else { return };
    let Some(row) = side.snapshots.iter().find(|row| row.guid == guid) else { return };
    let parent = row.dataset.clone();
    let mut moved: Vec<u64> = side.of(&parent).iter().map(|row| row.guid).collect();
    moved.truncate(moved.iter().position(|it| *it == guid).map_or(0, |at| at + 1));
    let is_moved = |row: &Row| row.dataset == parent && moved.contains(&row.guid);
    let (mut first, rest): (Vec<Row>, Vec<Row>) =
        std::mem::take(&mut side.snapshots).into_iter().partition(is_moved);
    first.iter_mut().for_each(|row| clone.clone_into(&mut row.dataset));
    side.snapshots = first.into_iter().chain(rest).collect();
    let before = origin_of(side, &parent);
    side.origins.retain(|(name, _)| *name != clone && *name != parent);
    side.origins.extend(before.map(|guid| (clone.to_owned(), guid)));
    side.origins.push((parent, guid));
}

fn send(goal: &str, base: Option<&Base>, mode: Mode, from: &Side, to: &mut Side) {
    let (top, name) = goal.split_once('@').unwrap_or((goal, ""));
    let is_in = |it: &&String| *it == top || mode == Mode::Replicate && is_below(it, top);
    for dataset in from.datasets.iter().filter(is_in) {
        let ours = from.of(dataset);
        let Some(end) = ours.iter().position(|row| row.name == name) else { continue };
        let of_base = match base {
            Some(Base::Snapshot(base)) => {
                let name = base.split('@').nth(1);
                ours.iter().position(|row| Some(row.name.as_str()) == name)
            }
            Some(Base::Bookmark(_)) | None => None,
        };
        let is_one = match base {
            None => mode != Mode::Replicate,
            Some(base) => mode == Mode::Plain || matches!(base, Base::Bookmark(_)),
        };
        let start = if is_one { end } else { of_base.map_or(0, |at| at + 1) };
        // `receive -F` rolls back what is younger.
        if let Some(base) = of_base.and_then(|at| ours.get(at)) {
            let theirs: Vec<u64> = to.of(dataset).iter().map(|row| row.guid).collect();
            let younger: Vec<u64> =
                theirs.into_iter().skip_while(|guid| *guid != base.guid).skip(1).collect();
            to.snapshots.retain(|row| row.dataset != *dataset || !younger.contains(&row.guid));
        }
        if !to.datasets.contains(dataset) {
            to.datasets.push(dataset.clone());
            let origin = from.origins.iter().find(|(of, _)| of == dataset);
            to.origins.extend(origin.filter(|(_, guid)| to.has(*guid)).cloned());
        }
        let comes = ours.into_iter().take(end + 1).skip(start);
        to.snapshots.extend(comes.cloned());
    }
}
