// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Answers of a zfs that prints any text as it is.

use proptest::prelude::*;

use super::*;

/// What zfs prints for these datasets.
fn printed(mounted: &[(&str, &str)]) -> Vec<u8> {
    let lines = mounted.iter().map(|(name, at)| format!("{name}\t{at}\n"));
    lines.collect::<String>().into_bytes()
}

fn sorted(asked: &[&str], missing: usize, printed: &[u8]) -> Option<Vec<(String, String)>> {
    let mut all: Vec<_> = parse(asked, missing, printed)?.into_iter().collect();
    all.sort();
    Some(all)
}

#[test]
fn one_line_of_each_dataset_is_believed() {
    let two = printed(&[("z/a", "/a"), ("z/b ", "/b\tc")]);
    let found = sorted(&["z/b ", "z/a"], 0, &two).unwrap();
    let wanted = [("z/a", "/a"), ("z/b ", "/b\tc")].map(|(name, at)| (name.into(), at.into()));
    assert_eq!(found, wanted);
    assert_eq!(sorted(&["z/b ", "z/gone", "z/a"], 1, &two).unwrap(), wanted);
    assert!(parse(&["z/gone"], 1, b"").unwrap().is_empty());
    let bytes = parse(&["z/a"], 0, b"z/a\t/caf\xe9\n").unwrap();
    assert_eq!(bytes["z/a"], "/caf\u{fffd}");
}

#[test]
fn other_lines_than_the_datasets_void_the_answer() {
    for (asked, missing, text) in [
        (&["z/a", "z/b"][..], 0, "z/a\t/a\nz/b\t/b\nz/c\t/c\n"),
        (&["z/a", "z/b"], 0, "z/a\t/a\nz/b\t/x\nz/b\t/b\n"),
        (&["z/a", "z/b"], 0, "z/a\t/a\n\nz/b\t/b\n"),
        (&["z/a", "z/b"], 0, "z/a\t/a\n"),
        (&["z/a", "z/b"], 0, "z/a\t/a\nz/c\t/c\n"),
        (&["z/a", "z/b"], 0, "z/a\t/a\nz/b /b\n"),
        (&["z/a", "z/b"], 0, "z/a\t/a\nz/b\t/b"),
        (&["z/a", "z/b"], 1, "z/a\t/a\nz/b\t/b\n"),
        (&["z/a", "z/b"], 3, ""),
        (&["z/a"], 0, "z/b\t/a\n"),
        (&["z/a"], 0, ""),
    ] {
        assert_eq!(parse(asked, missing, text.as_bytes()), None, "{asked:?} {missing} {text:?}");
    }
}

/// Any text, and such as looks like the rows of others.
fn text() -> impl Strategy<Value = String> {
    let row = prop_oneof!["(z/[a-d]|z|z/no)\t/[xy]", any::<String>()];
    proptest::collection::vec(row, 0..4).prop_map(|rows| format!("/{}", rows.join("\n")))
}

proptest! {
    #[test]
    fn no_text_changes_the_mountpoint_of_another_dataset(texts in proptest::collection::vec(text(), 4), gone in 0..4usize) {
        let names = ["z/a", "z/b", "z/c", "z/d"];
        let all: Vec<(&str, &str)> = names.into_iter().zip(texts.iter().map(String::as_str)).collect();
        let there: Vec<(&str, &str)> = all.iter().enumerate().filter(|(at, _)| *at != gone).map(|(_, it)| *it).collect();
        for (missing, mounted) in [(0, &all), (1, &there)] {
            if let Some(found) = parse(&names, missing, &printed(mounted)) {
                prop_assert_eq!(found.len(), mounted.len());
                for (name, at) in mounted {
                    prop_assert_eq!(&found[*name], at);
                }
            } else {
                prop_assert!(mounted.iter().any(|(_, at)| at.contains('\n')), "no reason to doubt");
            }
        }
        for (name, at) in all {
            // Alone, any text has one meaning.
            prop_assert_eq!(&parse(&[name], 0, &printed(&[(name, at)])).unwrap()[name], at);
        }
    }

    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), missing in 0..4usize) {
        let _ = parse(&["z/a", "z/b"], missing, &bytes);
        let _ = parse(&["z/a"], missing, &bytes);
    }
}
