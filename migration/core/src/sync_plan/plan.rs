// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Both sides and a number → what is to be done now.

use super::act::{Act, Base, Capabilities, Refusal};
use super::datasets::{Mode, Sent, is_below};
use super::shape::Shape;
use super::side::{Row, Side, Token, snapshot_name};

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
    let some = from.ours(|it| it == number);
    if some.is_empty() {
        return Ok(vec![Act::Snapshot(sent.iter().map(full).collect())]);
    }
    // Where a dataset lacks it that has an older one, its owner destroyed it, or rolled the dataset back.
    let has = |dataset: &str| from.of(dataset).iter().any(|row| row.number == Some(number));
    let numbers = from.numbers();
    let lacks = |dataset: &&String| !has(dataset) && numbers.contains_key(dataset.as_str());
    if !sent.iter().all(|it| has(&it.dataset)) || from.datasets.iter().any(|it| lacks(&it)) {
        return Ok(vec![Act::DropSnapshot(some)]);
    }
    let shape = Shape::new(sent, from, to, &name, may_restart);
    if let Some(act) = shape.before()? {
        return Ok(vec![act]);
    }
    let goal = Goal { from, to, name: &name, can, may_restart, shape: &shape };
    let (mut acts, mut late) = (Vec::new(), None);
    for it in sent {
        match goal.tree(it)? {
            Some(Step::Now(act)) => acts.push(act),
            Some(Step::Late(why, whole)) => late = late.or(Some((why, whole))),
            None => {}
        }
    }
    match (acts.is_empty(), late) {
        (true, Some((_, Some(whole)))) => Ok(vec![whole]),
        (true, Some((why, None))) => Err(why),
        (true, None) => Ok(shape.after().into_iter().collect()),
        (false, _) => Ok(acts),
    }
}

/// What is to be done for one dataset.
enum Step {
    Now(Act),
    /// It waits for another dataset: what it is a clone of, or is in. Where nothing else can be done, it is sent whole.
    Late(Refusal, Option<Act>),
}

/// What both sides are to have, and how.
struct Goal<'a> {
    from: &'a Side,
    to: &'a Side,
    name: &'a str,
    can: Capabilities,
    may_restart: bool,
    shape: &'a Shape<'a>,
}

impl Goal<'_> {
    /// The next act for a dataset and what goes with it: a replicated stream that was cut may have brought the dataset
    /// and not all that is below it. What is cloned comes before its clones, whatever the names are.
    fn tree(&self, it: &Sent) -> Result<Option<Step>, Refusal> {
        let (from, to, may_restart) = (self.from, self.to, self.may_restart);
        let mut names = vec![it.dataset.clone()];
        if it.mode == Mode::Replicate {
            let below = from.datasets.iter().filter(|dataset| is_below(dataset, &it.dataset));
            // One that was made after the snapshot has to wait for the next.
            let has = |dataset: &&String| from.of(dataset).iter().any(|row| row.name == self.name);
            names.extend(below.filter(has).cloned());
            names.sort();
        }
        let mut late = None;
        for part in &names {
            let one = Sent { dataset: part.clone(), mode: it.mode };
            let act = match self.dataset(&one, &names)? {
                None => continue,
                Some(Step::Late(why, whole)) => {
                    late = late.or(Some(Step::Late(why, whole)));
                    continue;
                }
                Some(Step::Now(Act::Send {
                    to: goal,
                    base: Some(base),
                    mode: Mode::Replicate,
                })) if !is_base_of_all(&base, part, &names, from, to) => {
                    Act::Send { to: goal, base: Some(base), mode: Mode::Props }
                }
                Some(Step::Now(act)) => act,
            };
            if let Act::Send {
                base: Some(Base::Snapshot(base)),
                mode: Mode::Props | Mode::Plain,
                ..
            } = &act
            {
                let younger = younger(base, part, from, to);
                if may_restart && !younger.is_empty() {
                    return Ok(Some(Step::Now(self.shape.destroy_snapshots(younger))));
                }
            }
            return Ok(Some(Step::Now(act)));
        }
        Ok(late)
    }

    /// The next act for one dataset of a tree.
    fn dataset(&self, it: &Sent, names: &[String]) -> Result<Option<Step>, Refusal> {
        let (from, to, can) = (self.from, self.to, self.can);
        let dataset = it.dataset.clone();
        let (ours, theirs) = (from.of(&dataset), to.of(&dataset));
        let Some(goal) = ours.iter().find(|row| row.name == self.name) else { return Ok(None) };
        if theirs.iter().any(|row| row.guid == goal.guid) {
            return Ok(None);
        }
        let now = |act| Ok(Some(Step::Now(act)));
        if let Some(token) = to.tokens.iter().find(|token| token.dataset == dataset) {
            return now(resume(token, &ours, can));
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
                return now(self.shape.destroy_snapshots(clashing));
            }
            let mut after = ours.iter().skip_while(|row| row.guid != base.guid).skip(1);
            let next = after.next().filter(|_| !can.packages);
            let base = Some(Base::Snapshot(base.full_name()));
            return now(send(it, next.unwrap_or(goal), base, can));
        }
        // A stream from a bookmark has no children.
        let is_alone = !can.packages || !from.datasets.iter().any(|it| is_below(it, &dataset));
        let marks = from.bookmarks.iter().rev().filter(|mark| mark.dataset == dataset);
        let mut common = marks.filter(|mark| theirs.iter().any(|row| row.guid == mark.guid));
        if let Some(mark) = common.next().filter(|_| can.bookmarks && is_alone) {
            let base = Base::Bookmark(format!("{dataset}#{}", mark.name));
            let mode = if can.packages { Mode::Props } else { Mode::Plain };
            return now(Act::Send { to: goal.full_name(), base: Some(base), mode });
        }
        if to.datasets.contains(&dataset) {
            if !self.may_restart {
                return Err(Refusal::NothingInCommon(dataset));
            }
            return now(self.shape.destroy(&dataset, 0));
        }
        // A tree's top that is not there was destroyed, and is not made anew where it must not be replaced.
        if !self.may_restart && names.first() == Some(&dataset) {
            return Err(Refusal::NothingInCommon(dataset));
        }
        self.first(it, names, goal, &ours).map(Some)
    }

    /// The first stream of a dataset. One that is sent alone begins with the oldest snapshot there is, so that those
    /// that people made travel, and with the snapshot that it was made of; a replicated one brings them along, with all
    /// that is below.
    fn first(
        &self,
        it: &Sent,
        names: &[String],
        goal: &Row,
        ours: &[&Row],
    ) -> Result<Step, Refusal> {
        let (from, to, can) = (self.from, self.to, self.can);
        let (dataset, oldest) = (&it.dataset, ours.first().unwrap_or(&goal));
        if it.mode != Mode::Replicate {
            return Ok(Step::Now(send(it, oldest, None, can)));
        }
        let alone = Sent { dataset: dataset.clone(), mode: Mode::Props };
        let whole = send(&alone, oldest, None, can);
        let origin_of = |of: &str| {
            let origin = from.origins.iter().find(|(name, _)| name == of);
            origin.map(|(_, guid)| *guid)
        };
        let comes = |guid: u64| {
            from.snapshots.iter().any(|row| row.guid == guid && names.contains(&row.dataset))
        };
        let origin = origin_of(dataset);
        if let Some(guid) = origin.filter(|guid| !to.has(*guid)) {
            let why = Refusal::NoOrigin { dataset: dataset.clone(), guid };
            return if comes(guid) { Ok(Step::Late(why, Some(whole))) } else { Err(why) };
        }
        // What is a clone there finds its origin by the GUID alone: one that was promoted may have it, too, and the
        // dataset that it was taken from, from which it has to go first.
        if let Some(guid) = origin.filter(|guid| self.may_restart && comes(*guid)) {
            let rows = to.snapshots.iter().filter(|row| row.guid == guid);
            let has = |of: &str| from.of(of).iter().any(|row| row.guid == guid);
            let (own, doubles): (Vec<&Row>, Vec<&Row>) = rows.partition(|row| has(&row.dataset));
            if !doubles.is_empty() && own.is_empty() {
                let why = Refusal::NoOrigin { dataset: dataset.clone(), guid };
                return Ok(Step::Late(why, Some(whole)));
            }
            if !doubles.is_empty() {
                let doubles = doubles.into_iter().map(Row::full_name).collect();
                return Ok(Step::Now(self.shape.destroy_snapshots(doubles)));
            }
        }
        let parent = dataset.rsplit_once('/').map_or("", |(parent, _)| parent);
        if names.iter().any(|it| it == parent) && !to.datasets.iter().any(|it| it == parent) {
            return Ok(Step::Late(Refusal::Missing(parent.to_owned()), None));
        }
        // What is below goes along if nothing of it is on the receiver yet, and all that it is cloned from is in it.
        let below: Vec<&String> = names.iter().filter(|name| is_below(name, dataset)).collect();
        let is_inside = |guid: u64| {
            let rows = from.snapshots.iter().filter(|row| row.guid == guid);
            rows.clone().any(|row| row.dataset == *dataset || is_below(&row.dataset, dataset))
        };
        let goes_along = |name: &&String| {
            let guids: Vec<u64> = from.of(name).iter().map(|row| row.guid).collect();
            let mut theirs = to.snapshots.iter().filter(|row| row.dataset != **name);
            let is_new = !theirs.any(|row| guids.contains(&row.guid));
            is_new && origin_of(name).is_none_or(|guid| to.has(guid) || is_inside(guid))
        };
        let is_whole_tree = can.packages && below.iter().all(goes_along);
        if is_whole_tree {
            return Ok(Step::Now(send(it, goal, None, can)));
        }
        let image = origin.and_then(|guid| from.snapshots.iter().find(|row| row.guid == guid));
        let base = image.map(|row| Base::Snapshot(row.full_name()));
        Ok(Step::Now(send(&alone, oldest, base, can)))
    }
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
