// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Each line of the planner's checklist, as tables.

#![allow(clippy::unwrap_used)]

use pretty_assertions::assert_eq;
use proptest::prelude::*;

use std::collections::{BTreeMap, BTreeSet};

use super::rehearse::play;
use super::side::number_of;
use super::*;

const ROOT: &str = "zones/vm";
const ALL: Capabilities = Capabilities { resume: true, bookmarks: true, packages: true };
const PLAIN: Capabilities = Capabilities { packages: false, ..ALL };

/// Reads `NAME=GUID` of the root, or `DATASET@NAME=GUID`; a leading `#` is a bookmark, `!` a token,
/// `^` the origin.
fn side(text: &str) -> Side {
    let mut side = Side::default();
    for word in text.split_whitespace() {
        let (name, guid) = word.split_once('=').unwrap();
        let guid = guid.parse().unwrap();
        let plain = name.trim_start_matches(['#', '!', '^']);
        let (dataset, snapshot) = plain.split_once('@').unwrap_or((ROOT, plain));
        let row = Row { dataset: dataset.into(), name: long(snapshot), guid, ..Row::default() };
        if !side.datasets.iter().any(|it| it == dataset) && !dataset.starts_with("zones/image") {
            side.datasets.push(dataset.into());
        }
        match name.chars().next() {
            Some('#') => side.bookmarks.push(row),
            Some('!') => {
                side.tokens.push(Token { dataset: dataset.into(), text: snapshot.into(), guid })
            }
            Some('^') => side.origins.push((dataset.into(), guid)),
            _ if snapshot != "-" => side.snapshots.push(row),
            _ => {}
        }
    }
    numbered(side)
}

fn numbered(mut side: Side) -> Side {
    side.number(ROOT, &Notes::default(), &BTreeSet::new());
    side
}

/// `3` stands for `vm-migration-3`.
fn long(name: &str) -> String {
    name.parse().map_or(name.to_owned(), snapshot_name)
}

fn short(act: &Act) -> String {
    let name = |text: &str| {
        text.replace("vm-migration-", "")
            .replace(&format!("{ROOT}@"), "")
            .replace(&format!("{ROOT}#"), "#")
    };
    let names = |all: &[String]| all.iter().map(|it| name(it)).collect::<Vec<_>>().join(",");
    match act {
        Act::Snapshot(all) => format!("snapshot {}", names(all)),
        Act::DropSnapshot(all) => format!("drop {}", names(all)),
        Act::DropPartial(dataset) => format!("drop partial {dataset}"),
        Act::DestroyDataset(dataset) => format!("destroy {dataset}"),
        Act::DestroySnapshots(all) => format!("destroy {}", names(all)),
        Act::Send { to, base, mode } => {
            let base = match base {
                None => String::new(),
                Some(Base::Snapshot(it) | Base::Bookmark(it)) => format!(" from {}", name(it)),
            };
            let how = match mode {
                Mode::Replicate => "",
                Mode::Props => " alone",
                Mode::Plain => " plain",
            };
            format!("send {}{base}{how}", name(to))
        }
        Act::Resume { dataset: _, token } => format!("resume {token}"),
        Act::Rename { from, to } => format!("rename {} {}", name(from), name(to)),
        Act::Promote(clone) => format!("promote {}", name(clone)),
    }
}

fn planned(
    sent: &[Sent],
    from: &str,
    to: &str,
    number: u32,
    can: Capabilities,
    restart: bool,
) -> String {
    match plan(sent, &side(from), &side(to), number, can, restart) {
        Ok(acts) => acts.iter().map(short).collect::<Vec<_>>().join("; "),
        Err(refusal) => format!("refused: {refusal}"),
    }
}

fn root(mode: Mode) -> Vec<Sent> {
    vec![Sent { dataset: ROOT.into(), mode }]
}

#[test] // M179
fn a_clone_finds_its_origin_where_the_sender_has_it() {
    let of =
        |text: &str| side(&text.replace('/', "zones/vm/data/").replace("top", "zones/vm/data"));
    let sent = [Sent { dataset: "zones/vm/data".into(), mode: Mode::Replicate }];
    // `b` was made of `c`, and promoted, `d` of what `b` took along.
    let from = of("2=1 top@2=2 /b@r=9 /b@2=22 /c@1=31 /c@2=32 ^/c@r=9 /d@2=42 ^/d@r=9");
    let to = "2=1 top@2=2 /b@r=9 /b@2=22 /c@r=9 /c@1=31 /c@2=32";
    for (there, want) in
        [(to, "destroy zones/vm/data/c@r"), (&to.replace("/c@r=9 ", ""), "send zones/vm/data/d@2")]
    {
        let acts = plan(&sent, &from, &of(there), 2, PLAIN, true).unwrap();
        let acts: Vec<String> = acts.iter().map(short).collect();
        assert!(acts.len() == 1 && acts[0].starts_with(want), "{acts:?}");
    }
}

#[test] // M13, R8, R9, R11, R25
fn the_sends_follow_from_the_snapshots_of_both_sides() {
    for (what, number, from, to, want) in [
        ("none, none", 1, "-=0", "", "snapshot 1"),
        ("first", 1, "1=11", "", "send 1"),
        ("first, the target was created with a dataset", 1, "1=11", "-=0", "destroy zones/vm"),
        ("done", 1, "1=11", "1=11", ""),
        ("1 on both", 2, "1=11", "1=11", "snapshot 2"),
        ("next", 2, "1=11 2=12", "1=11", "send 2 from 1"),
        ("only on the source, with a token", 2, "1=11 2=12", "1=11 !tok=12", "resume tok"),
        ("only on the source, without", 1, "1=11", "", "send 1"),
        ("token of a first stream", 1, "1=11", "!tok=11", "resume tok"),
        (
            "token of a snapshot that is gone",
            2,
            "1=11 2=12",
            "1=11 !tok=99",
            "drop partial zones/vm",
        ),
        ("a gap: 2 never arrived", 3, "1=11 2=12 3=13", "1=11", "send 3 from 1"),
        ("the predecessor is gone from the target", 3, "2=12 3=13", "1=11", "destroy zones/vm"),
        ("the target is ahead", 1, "1=21", "1=11 2=12", "destroy zones/vm"),
        ("the target has some, the source none", 3, "-=0", "2=12", "snapshot 3"),
        ("the source was reprovisioned", 3, "3=33", "2=12", "destroy zones/vm"),
        ("rolled back to 1 by hand", 3, "1=11 3=13", "1=11 2=12", "send 3 from 1"),
        ("same name, another GUID", 2, "1=11 2=12", "1=11 2=99", "send 2 from 1"),
        ("same names, nothing in common", 2, "1=11 2=12", "1=21 2=22", "destroy zones/vm"),
        ("a clash before the base", 3, "u=50 2=12 3=13", "u=99 2=12", "destroy u"),
        ("people's snapshots between", 2, "u=50 1=11 w=51 2=12 x=52", "u=50 1=11", "send 2 from 1"),
        ("a person's is the last that arrived", 2, "1=11 w=51 2=12", "1=11 w=51", "send 2 from w"),
        ("a person's alone is common", 2, "w=51 2=12", "w=51", "send 2 from w"),
        (
            "names like ours",
            2,
            "vm-migration-x=7 vm-migration-01=8 2=12",
            "vm-migration-01=8",
            "send 2 from 01",
        ),
        ("a bookmark of 1 is left", 2, "#1=11 2=12", "1=11", "send 2 from #1 alone"),
        ("a bookmark, and a child", 2, "#1=11 2=12 zones/vm/data@2=31", "1=11", "destroy zones/vm"),
        ("a clone whose image is there", 1, "1=11 ^x=77", "zones/image@final=77", "send 1"),
        (
            "a clone whose image is not there",
            1,
            "1=11 ^x=77",
            "",
            "refused: zones/vm is a clone, and the other node does not have the snapshot that it was made of",
        ),
        (
            "the image's snapshot of the same name",
            1,
            "1=11 ^x=77",
            "zones/image@x=78",
            "refused: zones/vm is a clone, and the other node does not have the snapshot that it was made of",
        ),
        ("an increment of a clone needs no image", 2, "1=11 2=12 ^x=77", "1=11", "send 2 from 1"),
    ] {
        assert_eq!(planned(&root(Mode::Replicate), from, to, number, ALL, true), want, "{what}");
    }
}

#[test] // M14
fn nothing_is_relied_on_that_a_node_cannot_do() {
    let none = Capabilities { packages: true, ..Capabilities::default() };
    let sent = root(Mode::Replicate);
    assert_eq!(planned(&sent, "1=11 2=12", "1=11 !t=12", 2, none, true), "drop partial zones/vm");
    assert_eq!(planned(&sent, "#1=11 2=12", "1=11", 2, none, true), "destroy zones/vm");
}

#[test] // M13
fn what_is_below_a_dataset_is_brought_to_the_goal_after_a_stream_that_was_cut() {
    let data = "zones/vm/data";
    for (what, from, to, want) in [
        ("all is there", "1=11 D@1=21 2=12 D@2=22", "2=12 D@2=22", ""),
        ("the root came, its child did not", "2=12 D@2=22", "2=12", "send D@2"),
        (
            "the child has its own base",
            "1=11 2=12 D@1=21 D@2=22",
            "2=12 D@1=21",
            "send D@2 from D@1",
        ),
        ("the child was cut", "2=12 D@2=22", "2=12 D@-=0 !D@tok=22", "resume tok"),
        (
            "the root has a base that its child lacks",
            "1=11 a=15 2=12 D@1=21 D@a=25 D@2=22",
            "1=11 a=15 D@1=21",
            "send 2 from a alone",
        ),
        (
            "both have it",
            "1=11 a=15 2=12 D@1=21 D@a=25 D@2=22",
            "1=11 a=15 D@1=21 D@a=25",
            "send 2 from a",
        ),
        ("the child is younger than the base", "1=11 2=12 D@2=22", "1=11", "send 2 from 1"),
        (
            "the root was rolled back to a snapshot that its child never had",
            "1=11 a=15 2=13 D@1=21 D@2=22",
            "1=11 a=15 2=12 D@1=21",
            "destroy 2",
        ),
        (
            "the same, a step on",
            "1=11 a=15 2=13 D@1=21 D@2=22",
            "1=11 a=15 D@1=21",
            "send 2 from a alone",
        ),
        ("the child is younger than the goal", "2=12 D@-=0", "2=12", ""),
    ] {
        let long = |text: &str| text.replace('D', data);
        let got = planned(&root(Mode::Replicate), &long(from), &long(to), 2, ALL, true);
        assert_eq!(got.replace(data, "D"), want, "{what}");
    }
}

#[test] // M93
fn encrypted_datasets_go_one_by_one_each_snapshot_by_itself() {
    for (what, from, to, want) in [
        ("first", "1=11", "", "send 1 plain"),
        ("people's go first", "u=50 1=11", "", "send u plain"),
        ("then the next", "u=50 w=51 1=11", "u=50", "send w from u plain"),
        (
            "a clone",
            "1=11 ^x=77 zones/image@final=77",
            "zones/image@final=77",
            "send 1 from zones/image@final plain",
        ),
        ("a child is not brought along", "1=11 D@1=21", "1=11", "send D@1 plain"),
        (
            "a child's child, a space in its name",
            "1=11 D@-=0 D/a@1=21",
            "1=11 D@-=0",
            "send D/a@1 plain",
        ),
        ("a child in between", "1=11 2=12 D@1=21 D@2=22", "2=12 D@1=21", "send D@2 from D@1 plain"),
        ("a bookmark", "#1=11 2=12 D@2=22", "1=11", "send 2 from #1 plain"),
        ("a token", "1=11 2=12", "1=11 !tok=12", "resume tok"),
        ("what people destroyed", "2=12", "w=51 2=12", "destroy w"),
        ("a child that is gone", "2=12", "2=12 D@2=22 D/x@2=32", "destroy D"),
        ("what is younger than the base", "1=11 3=13", "1=11 2=12", "destroy 2"),
        ("nothing in common", "2=12", "1=21", "destroy zones/vm"),
        ("done", "1=11 2=12 D@2=22", "1=11 2=12 D@2=22", ""),
    ] {
        let long = |text: &str| text.replace('D', "zones/vm/data");
        let newest = [("3=13", 3), ("2=12", 2)].into_iter().find(|(row, _)| from.contains(row));
        let number = newest.map_or(1, |(_, number)| number);
        let got = planned(&root(Mode::Replicate), &long(from), &long(to), number, PLAIN, true);
        assert_eq!(got.replace("zones/vm/data", "D"), want, "{what}");
    }
    // What the source has stays in a rollback.
    let sent = root(Mode::Replicate);
    assert_eq!(planned(&sent, "2=12", "w=51 2=12", 2, PLAIN, false), "");
}

#[test] // M15
fn a_rollback_never_destroys_the_source() {
    let sent = root(Mode::Replicate);
    assert_eq!(planned(&sent, "2=12 3=13", "1=11 2=12", 3, ALL, false), "send 3 from 2");
    let want = "refused: zones/vm has no snapshot in common with the other node's";
    assert_eq!(planned(&sent, "3=13", "2=12", 3, ALL, false), want);
    assert_eq!(planned(&sent, "3=13", "-=0", 3, ALL, false), want);
}

#[test] // M13
fn docker_begins_with_its_oldest_snapshot() {
    let sent = root(Mode::Props);
    for (from, to, want) in [
        ("layer=5 1=11 ^x=77", "", "send layer alone"),
        ("layer=5 1=11", "layer=5", "send 1 from layer alone"),
        ("1=11", "", "send 1 alone"),
        ("layer=5 1=11", "other=6", "destroy zones/vm"),
    ] {
        assert_eq!(planned(&sent, from, to, 1, ALL, true), want, "{from} → {to}");
    }
}

#[test] // M13
fn several_datasets_have_one_moment() {
    let sent: Vec<Sent> = ["zones/vm", "zones/vm-disk0"]
        .map(|dataset| Sent { dataset: dataset.into(), mode: Mode::Replicate })
        .into();
    let from = "zones/vm@1=11 zones/vm-disk0@1=21 zones/vm/child@1=31";
    assert_eq!(planned(&sent, from, "", 1, ALL, true), "send 1; send zones/vm-disk0@1");
    // A child's snapshot of the same name is not the dataset's.
    let to = "zones/vm/child@1=31 zones/vm-disk0@1=21";
    assert_eq!(planned(&sent, from, to, 1, ALL, true), "send 1");
    let half = "zones/vm@1=11 zones/vm@2=12 zones/vm-disk0@1=21";
    assert_eq!(planned(&sent, half, from, 2, ALL, true), "drop 2");
    let gone = "zones/vm@1=11";
    assert_eq!(
        planned(&sent, gone, from, 1, ALL, true),
        "refused: zones/vm-disk0 does not exist on the sending node"
    );
}

#[test] // M12
fn the_datasets_of_each_kind_of_vm() {
    let vm = Vm { zfs_filesystem: ROOT.into(), ..Vm::default() };
    let disks = || vec!["zones/vm-disk1".to_owned(), "zones/vm-disk0".to_owned()];
    let data = Some("zones/vm/data".to_owned());
    for (what, vm, want) in [
        ("zone", vm.clone(), "zones/vm"),
        ("delegated", Vm { delegated: data.clone(), ..vm.clone() }, "zones/vm"),
        (
            "delegated elsewhere",
            Vm { delegated: Some("zones/data".into()), ..vm.clone() },
            "zones/data zones/vm",
        ),
        ("bhyve", Vm { disks: Disks::Below, ..vm.clone() }, "zones/vm"),
        (
            "kvm",
            Vm { disks: Disks::Beside(disks()), ..vm.clone() },
            "zones/vm zones/vm-disk0 zones/vm-disk1",
        ),
        ("docker", Vm { is_docker: true, ..vm.clone() }, "zones/vm(alone)"),
        (
            "docker with all",
            Vm { is_docker: true, has_shared_volumes: true, delegated: data, ..vm },
            "zones/vm(alone) zones/vm/data zones/vm/volumes",
        ),
    ] {
        let name = |it: &Sent| {
            let alone = if it.mode == Mode::Props { "(alone)" } else { "" };
            format!("{}{alone}", it.dataset)
        };
        let names: Vec<String> = sent(&vm).iter().map(name).collect();
        assert_eq!(names.join(" "), want, "{what}");
    }
}

#[test] // M230
fn a_rehearsal_names_all_that_a_sync_will_do_or_why_it_cannot() {
    for (what, from, to, held, want) in [
        ("the last increment", "1=11", "1=11", "", "snapshot 2; send 2 from 1"),
        ("first", "-=0", "-=0", "", "snapshot 2; destroy zones/vm; send 2"),
        (
            "renamed",
            "1=11 zones/vm/data@1=21 zones/vm/data/b@1=31",
            "1=11 zones/vm/data@1=21 zones/vm/data/a@1=31",
            "",
            "snapshot 2; rename zones/vm/data/a zones/vm/data/b; send 2 from 1",
        ),
        (
            "promoted",
            "1=11 zones/vm/data@1=21 zones/vm/data/b@s=32 zones/vm/data/b@1=41 ^zones/vm/data/a@-=32 zones/vm/data/a@1=33",
            "1=11 zones/vm/data@1=21 zones/vm/data/a@s=32 zones/vm/data/a@1=33 ^zones/vm/data/b@-=32 zones/vm/data/b@1=41",
            "",
            "snapshot 2; promote zones/vm/data/b; send 2 from 1",
        ),
        (
            "what is gone goes",
            "1=11 zones/vm/data@1=21",
            "1=11 zones/vm/data@1=21 zones/vm/data/a@1=31",
            "",
            "snapshot 2; send 2 from 1; destroy zones/vm/data/a",
        ),
        (
            "what is gone is held",
            "1=11 zones/vm/data@1=21",
            "1=11 zones/vm/data@1=21 zones/vm/data/a@1=31",
            "zones/vm/data/a@vm-migration-1",
            "refused: zones/vm/data/a@vm-migration-1 has to go from the other node, and is held there (zfs holds)",
        ),
        (
            "the image is gone",
            "1=11 ^zones/vm/data@-=5 zones/vm/data@1=21",
            "1=11",
            "",
            "refused: zones/vm/data is a clone, and the other node does not have the snapshot that it was made of",
        ),
    ] {
        let (from, mut to) = (side(from), side(to));
        to.held.extend(Some(held.to_owned()).filter(|held| !held.is_empty()));
        let got = match rehearse(&root(Mode::Replicate), &from, &to, 2, ALL) {
            Ok(acts) => acts.iter().map(short).collect::<Vec<_>>().join("; "),
            Err(refusal) => format!("refused: {refusal}"),
        };
        assert_eq!(got, want, "{what}");
    }
}

#[test] // M16, M110
fn the_snapshots_of_children_go_first_and_those_of_the_root_last() {
    for (node, keep, want) in [
        ("1=11 u=50 2=12", Some(2), "@1"),
        ("1=11 2=12 u=50", None, "@1,@2"),
        ("1=11 zones/vm/data@1=21 zones/vm-disk0@1=31", None, "/data@1,-disk0@1,@1"),
        ("1=11 zones/vm/data@1=21 zones/vm/data@9=29 zones/vm/data/x@2=22", None, "/data@1,@1"),
    ] {
        let names = side(node).ours(|number| Some(number) != keep);
        let short = |it: String| it.replace("vm-migration-", "").replace(ROOT, "");
        let names: Vec<String> = names.into_iter().map(short).collect();
        assert_eq!(names.join(","), want, "{node}");
    }
}

#[test] // M110
fn a_name_is_a_sync_snapshots_where_the_root_has_it_from_the_same_moment() {
    let row = |dataset: &str, name: &str, txg| Row {
        dataset: dataset.into(),
        name: name.into(),
        txg,
        ..Row::default()
    };
    let data = "zones/vm/data";
    let rows = || {
        vec![
            row(ROOT, "vm-migration-1", 10),
            row(ROOT, "vm-migration-2", 20),
            row(ROOT, "vm-migration-4", 40),
            row(data, "vm-migration-1", 10),
            row(data, "vm-migration-2", 21),
            row(data, "vm-migration-3", 20),
            row("zones/vm/data/x", "vm-migration-1", 11),
            row("zones/vm/data/x", "vm-migration-2", 29),
            row("zones/vm/data/x", "vm-migration-4", 40),
            row("zones/image", "vm-migration-1", 10),
        ]
    };
    let (made, received) = (BTreeSet::from([1]), BTreeMap::from([(2, 22)]));
    let known = Notes { made, received };
    for (known, left, want) in [
        (Notes::default(), "", "1 2 4 1 2 - 1 2 4 -"),
        (known.clone(), "", "1 2 4 1 2 - - - 4 -"),
        (known, "zones/vm@vm-migration-4", "1 2 - 1 2 - - - - -"),
    ] {
        let datasets = [ROOT, data, "zones/vm/data/x"].map(str::to_owned).into();
        let mut side = Side { datasets, snapshots: rows(), ..Side::default() };
        side.number(ROOT, &known, &BTreeSet::from([left.to_owned()]));
        let numbers = side.snapshots.iter().map(|row| row.number);
        let numbers: Vec<String> =
            numbers.map(|it| it.map_or("-".into(), |it| it.to_string())).collect();
        assert_eq!(numbers.join(" "), want);
    }
}

#[test] // M110
fn the_numbers_that_others_have_taken_are_ranges() {
    let side = side("1=1 zones/vm/data@1=2 zones/vm/data@2=3 zones/vm/data@3=4 zones/vm/data@9=5");
    assert_eq!(side.taken_above(0, 9), [(2, 3), (9, 9)]);
    assert_eq!(side.taken_above(2, 9), [(3, 3), (9, 9)]);
    assert_eq!(side.taken_above(0, 1), [(2, 3)]);
    assert_eq!(side.others_named_so(ROOT, 9), [] as [&str; 0]);
}

#[test]
fn names_of_sync_snapshots() {
    for (name, number) in [
        ("vm-migration-1", Some(1)),
        ("vm-migration-12", Some(12)),
        ("vm-migration-0", None),
        ("vm-migration-01", None),
        ("vm-migration-", None),
        ("vm-migration-+1", None),
        ("migrate-snap-1", None),
        ("vm-migration-99999999999", None),
        ("vm-migration-00", None),
        ("vm-migration-18446744073709551616", None),
        ("vm-migration-9 a", None),
        ("vm-migration- 9", None),
        ("vm-migration-9a", None),
        ("vm-migration-4294967295", Some(u32::MAX)),
    ] {
        assert_eq!(number_of(name), number, "{name}");
    }
}

proptest! {
    /// Wherever both sides are, the plans lead to the goal in a few steps, and no two snapshots of a
    /// dataset have one name then.
    #[test] // M13
    fn plans_lead_to_the_goal(
        ours in prop::collection::vec((1..6_u32, 1..9_u64), 0..5),
        theirs in prop::collection::vec((1..6_u32, 1..9_u64), 0..5),
        is_there: bool, token in prop::option::of(1..9_u64), resume: bool, packages: bool,
        number in 1..6_u32,
    ) {
        let make = |rows: &[(u32, u64)]| {
            let mut side = Side { datasets: vec![ROOT.into()], ..Side::default() };
            for (number, guid) in rows {
                let name = snapshot_name(*number);
                if side.snapshots.iter().all(|row| row.name != name && row.guid != *guid) {
                    side.snapshots.push(Row {
                        dataset: ROOT.into(),
                        name,
                        guid: *guid,
                        ..Row::default()
                    });
                }
            }
            side
        };
        let (mut from, mut to) = (make(&ours), make(&theirs));
        if !is_there {
            to = Side::default();
        }
        to.tokens = token.map(|guid| Token { dataset: ROOT.into(), text: "t".into(), guid }).into_iter().collect();
        let can = Capabilities { resume, bookmarks: false, packages };
        let planned = rehearse(&root(Mode::Replicate), &numbered(from.clone()), &to, number, can).unwrap();
        let mut done = Vec::new();
        for _ in 0..12 {
            from = numbered(from);
            let acts = plan(&root(Mode::Replicate), &from, &to, number, can, true).unwrap();
            acts.iter().for_each(|act| play(act, number, &mut from, &mut to));
            done.extend(acts);
        }
        prop_assert_eq!(planned, done);
        from = numbered(from);
        let acts = plan(&root(Mode::Replicate), &from, &to, number, can, true).unwrap();
        prop_assert_eq!(acts, Vec::new());
        let goal = from.snapshots.iter().find(|row| row.name == snapshot_name(number)).unwrap();
        prop_assert!(to.has(goal.guid));
    }
}
