// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What has ended about the snapshots of a volume: what a change of its record says. Pure.

use serde_json::Value;

use super::checks::{self, Causes, Params};
use super::refused::Refused;
use super::snapshot::{Snapshot, Stage};
use super::volume::{State, Volume};

/// So many entries an answer has at most.
pub const MOST: usize = 1000;

/// What has ended about a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// `snapshot`, `delete-snapshot`, `rollback`, `went-with-volume`.
    pub what: &'static str,
    /// With who asked.
    pub snapshot: Snapshot,
    /// Why it failed.
    pub error: Option<String>,
}

/// Returns what ended with this change of a volume.
pub fn ended(before: &Volume, after: &Volume) -> Vec<End> {
    let left = after.snapshots();
    let why = |now: &Snapshot| now.reason.clone().unwrap_or_else(|| "it failed".to_owned());
    let mut all = Vec::new();
    for snapshot in before.snapshots() {
        let now = left.iter().find(|it| it.uuid == snapshot.uuid);
        let (what, error) = match (snapshot.state, now.map(|it| it.state)) {
            (Stage::Creating, Some(Stage::Created)) => ("snapshot", None),
            (Stage::Creating, Some(Stage::Failed)) => ("snapshot", now.map(why)),
            (Stage::Deleting, None) => ("delete-snapshot", None),
            _ => continue,
        };
        all.push(End { what, snapshot, error });
    }
    let rolled = before.rollback().filter(|_| before.state() == State::RollingBack);
    if let Some(rollback) = rolled {
        let is_it = |it: &&Snapshot| it.uuid == rollback.snapshot;
        let snapshot = left.iter().find(is_it).cloned();
        let snapshot = snapshot.or_else(|| before.snapshots().iter().find(is_it).cloned());
        let error = match after.state() {
            State::Ready => Some(snapshot.as_ref().and_then(|it| it.reason.clone())),
            State::Failed => Some(Some("the storage VM failed, or is gone".to_owned())),
            _ => None,
        };
        let end = snapshot.zip(error);
        all.extend(end.map(|(snapshot, error)| End { what: "rollback", snapshot, error }));
    }
    all
}

/// Returns what ends when the volume's record goes: its snapshots go with it, and what was on its way is not done.
pub fn gone(volume: &Volume) -> Vec<End> {
    let why = || Some("the volume is gone".to_owned());
    let rolled = volume.rollback().map(|rollback| rollback.snapshot);
    let mut all = Vec::new();
    for snapshot in volume.snapshots() {
        if rolled.as_ref() == Some(&snapshot.uuid) {
            all.push(End { what: "rollback", snapshot: snapshot.clone(), error: why() });
        }
        let (what, error) = match snapshot.state {
            Stage::Creating => ("snapshot", why()),
            // Its entry says so.
            Stage::Failed => continue,
            Stage::Deleting => ("delete-snapshot", None),
            Stage::Created => ("went-with-volume", None),
        };
        // Who asked for the snapshot did not ask for its end.
        let asked = snapshot.asked.clone().filter(|_| snapshot.state != Stage::Created);
        all.push(End { what, snapshot: Snapshot { asked, ..snapshot }, error });
    }
    all
}

/// What is asked of the history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub volume_uuid: Option<String>,
    pub owner_uuid: Option<String>,
    /// What ended then or later, as ISO 8601.
    pub since: Option<String>,
}

/// `GET /volumehistory`.
pub fn wanted(params: &Params) -> Result<Wanted, Refused> {
    let mut causes = Causes::default();
    causes.names(params, &[], &["volume_uuid", "owner_uuid", "since"]);
    for name in ["volume_uuid", "owner_uuid"] {
        if params.contains_key(name) {
            causes.check(checks::uuid(params.get(name), name));
        }
    }
    let text = |name: &str| params.get(name).and_then(Value::as_str).map(str::to_owned);
    causes.done()?;
    Ok(Wanted {
        volume_uuid: text("volume_uuid"),
        owner_uuid: text("owner_uuid"),
        since: text("since"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::snapshot::{Origin, Rollback};
    use crate::snapshots::{
        Which, asked_by, destroyed, failed, gave_up, lost, made, ready, rolled_back,
    };
    use crate::volume::NewVolume;

    fn volume(state: State, stage: Stage) -> Volume {
        let mut volume = Volume::new(NewVolume::sample());
        volume.set_state(state);
        let (uuid, name) = ("s".to_owned(), "first".to_owned());
        let (create_timestamp, reason, asked) = (1_794_000_000_000, None, None);
        volume.set_snapshots(&[Snapshot {
            uuid,
            name,
            create_timestamp,
            state: stage,
            reason,
            asked,
        }]);
        let asked = Origin {
            by: Some("ops".into()),
            program: Some("curl/8".into()),
            at: 1_794_000_000_000,
        };
        asked_by(&mut volume, &Which::Uuid("s".into()), &asked).unwrap();
        if state == State::RollingBack {
            volume.set_rollback(Some(&Rollback { snapshot: "s".into(), is_over: false }));
        }
        volume
    }

    /// What each of these changes ends, one after the other.
    fn told(mut volume: Volume, changes: &[&dyn Fn(&mut Volume)]) -> Vec<(String, Option<String>)> {
        let mut all = Vec::new();
        for change in changes {
            let before = volume.clone();
            change(&mut volume);
            all.extend(ended(&before, &volume));
            assert_eq!(ended(&volume, &volume), [], "once");
        }
        for end in &all {
            let asked = end.snapshot.asked.as_ref().unwrap();
            assert_eq!((asked.by.as_deref(), asked.at), (Some("ops"), 1_794_000_000_000));
        }
        all.into_iter().map(|it| (it.what.to_owned(), it.error)).collect()
    }

    #[test] // V143
    fn each_end_is_told_once_with_who_asked_and_why_it_failed() {
        let entry = |what: &str, why: Option<&str>| vec![(what.to_owned(), why.map(str::to_owned))];
        let (making, deleting) =
            (volume(State::Ready, Stage::Creating), volume(State::Ready, Stage::Deleting));
        let rolling = volume(State::RollingBack, Stage::Created);
        assert_eq!(told(making.clone(), &[&|it| made(it, "s")]), entry("snapshot", None));
        let full = told(making, &[&|it| failed(it, "s", "no room")]);
        assert_eq!(full, entry("snapshot", Some("no room")));
        assert_eq!(told(deleting, &[&|it| destroyed(it, "s")]), entry("delete-snapshot", None));
        let back: [&dyn Fn(&mut Volume); 2] =
            [&|it| rolled_back(it, "s", &["s".to_owned()]), &|it| ready(it, "s")];
        assert_eq!(told(rolling.clone(), &back), entry("rollback", None));
        let given_up: [&dyn Fn(&mut Volume); 2] =
            [&|it| gave_up(it, "s", "held"), &|it| ready(it, "s")];
        assert_eq!(told(rolling.clone(), &given_up), entry("rollback", Some("held")));
        let gone = entry("rollback", Some("the storage VM failed, or is gone"));
        assert_eq!(told(rolling, &[&lost]), gone);
    }

    #[test] // V140, V143
    fn what_goes_with_the_volume_is_told() {
        let ends = |state, stage| {
            let all = gone(&volume(state, stage)).into_iter();
            all.map(|end| (end.what, end.error.is_some(), end.snapshot.asked.is_some()))
                .collect::<Vec<_>>()
        };
        assert_eq!(ends(State::Ready, Stage::Created), [("went-with-volume", false, false)]);
        assert_eq!(ends(State::Failed, Stage::Creating), [("snapshot", true, true)]);
        assert_eq!(ends(State::Ready, Stage::Deleting), [("delete-snapshot", false, true)]);
        assert_eq!(ends(State::Ready, Stage::Failed), []);
        let rolled = [("rollback", true, true), ("went-with-volume", false, false)];
        assert_eq!(ends(State::RollingBack, Stage::Created), rolled);
    }

    #[test]
    fn what_is_asked_is_checked() {
        let params = |value: Value| value.as_object().cloned().unwrap();
        assert_eq!(wanted(&params(json!({}))).unwrap(), Wanted::default());
        assert!(wanted(&params(json!({"owner_uuid": "x"}))).is_err());
        assert!(wanted(&params(json!({"odd": "x"}))).is_err());
    }
}
