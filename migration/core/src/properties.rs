// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which properties of a dataset go from node to node, and which values. Both ends judge by it: the receiver does not
//! trust the sender's list.
//!
//! A tenant writes user properties and mountpoints of what is delegated to his VM, byte for byte, and `zfs` prints them
//! as they are. So only properties in `WORDS` are read in rows, and a text is read alone.

/// How whoever mounts a dataset treats what is in it. A tenant sets them where it is zoned, and they would be the node's
/// own if it were not zoned for a moment: the receiver sets them there when it has made the dataset the zone's.
const OF_NODE: [&str; 4] = ["canmount", "devices", "exec", "setuid"];
/// Each node decides where a dataset is mounted and shared.
pub const PLACES: [&str; 3] = ["mountpoint", "sharenfs", "sharesmb"];

/// Copied of every dataset. Their values are keywords and numbers of `zfs`.
const CARRIED: [&str; 25] = [
    "aclinherit",
    "aclmode",
    "atime",
    "checksum",
    "compression",
    "copies",
    "dedup",
    "filesystem_limit",
    "logbias",
    "nbmand",
    "primarycache",
    "quota",
    "readonly",
    "recordsize",
    "redundant_metadata",
    "refquota",
    "refreservation",
    "reservation",
    "secondarycache",
    "snapdir",
    "snapshot_limit",
    "special_small_blocks",
    "sync",
    "vscan",
    "xattr",
];

/// Other properties whose values are keywords, numbers and names of `zfs`, never free text.
const WORDS: [&str; 17] = [
    "available",
    "creation",
    "createtxg",
    "encryption",
    "encryptionroot",
    "guid",
    "keystatus",
    "mounted",
    "origin",
    "receive_resume_token",
    "referenced",
    "type",
    "used",
    "userrefs",
    "volsize",
    "written",
    "zoned",
];

/// Returns true if the values of a property can be read in rows.
pub fn is_word(name: &str) -> bool {
    WORDS.contains(&name) || CARRIED.contains(&name) || OF_NODE.contains(&name)
}

/// Returns true for the name of a user property, as zfs(8) allows them.
pub fn is_user(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ":+._-".contains(c);
    name.contains(':') && name.chars().all(fine)
}

/// Returns true if a value can be copied: it is one line that reads the same everywhere.
pub fn is_plain(value: &str) -> bool {
    !value.chars().any(|c| c.is_control() || c == '\u{2028}' || c == '\u{2029}' || c == '\u{fffd}')
}

/// Whether a property that is set on a dataset goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// It is copied, and its value is a keyword or a number.
    Word,
    /// It does, if its value is plain: people wrote it.
    Text,
    /// The same, where the dataset is a zone's on both nodes: it says where and how the zone mounts it.
    OfZone,
    /// It does not: the node decides it, or it comes with the stream and cannot be set.
    No,
}

/// Judges a property of a dataset.
pub fn judge(name: &str, is_zoned: bool) -> Carried {
    if is_user(name) {
        Carried::Text
    } else if CARRIED.contains(&name) || !is_zoned && OF_NODE.contains(&name) {
        Carried::Word
    } else if is_zoned && (OF_NODE.contains(&name) || name == "mountpoint") {
        Carried::OfZone
    } else {
        Carried::No
    }
}

/// Returns true for a property that is lost where the stream does not bring it.
pub fn is_missed(name: &str) -> bool {
    OF_NODE.contains(&name) || PLACES.contains(&name)
}

/// Returns true if the receiver sets this value.
pub fn may_set(name: &str, value: &str, is_zoned: bool) -> bool {
    judge(name, is_zoned) != Carried::No && is_plain(value)
}

/// Reads the values of these user properties of one dataset, as `zfs get -H -o property,value` prints them in this
/// order. None where a value has more than one line, so that a line cannot be matched to its value.
pub fn in_lines<'a>(printed: &'a [u8], names: &[String]) -> Option<Vec<&'a [u8]>> {
    let lines: Vec<&[u8]> = printed.strip_suffix(b"\n")?.split(|byte| *byte == b'\n').collect();
    if lines.len() != names.len() {
        return None; // each has a line at least: as many lines as names are one each
    }
    let value = |(line, name): (&&'a [u8], &String)| {
        line.strip_prefix(name.as_bytes())?.strip_prefix(b"\t")
    };
    lines.iter().zip(names).map(value).collect()
}

/// Returns the value if it can be copied.
pub fn plain(value: &[u8]) -> Option<String> {
    std::str::from_utf8(value).ok().filter(|text| is_plain(text)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What `zfs get -H -o property,value` prints.
    fn printed(values: &[(String, String)]) -> Vec<u8> {
        let rows = values.iter().map(|(name, value)| format!("{name}\t{value}\n"));
        rows.collect::<String>().into_bytes()
    }

    /// A text of a tenant who wants it to be read as rows.
    fn text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("\n".to_owned()),
            Just("\t".to_owned()),
            Just("\r\n".to_owned()),
            Just("com.example:b\t".to_owned()),
            Just("zones/vm/data\tzoned\toff\tlocal\n".to_owned()),
            Just("\u{2028}".to_owned()),
            "[ -~]{0,6}",
        ];
        prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test] // M90
        fn whatever_a_tenant_writes_a_value_is_read_as_it_is_or_not_at_all(texts in prop::collection::vec(text(), 1..5)) {
            let named = |(at, text): (usize, String)| (format!("com.example:{}", (b'a' + at as u8) as char), text);
            let values: Vec<(String, String)> = texts.into_iter().enumerate().map(named).collect();
            let names: Vec<String> = values.iter().map(|(name, _)| name.clone()).collect();
            let all = printed(&values);
            match in_lines(&all, &names) {
                Some(read) => {
                    let read: Vec<&[u8]> = read;
                    let want: Vec<&[u8]> = values.iter().map(|(_, value)| value.as_bytes()).collect();
                    prop_assert_eq!(read, want);
                }
                None => prop_assert!(values.iter().any(|(_, value)| value.contains('\n'))),
            }
            for (_, value) in &values {
                prop_assert_eq!(plain(value.as_bytes()).is_some(), !value.contains(['\n', '\t', '\r', '\u{2028}']));
            }
        }
    }

    #[test] // M90, M91
    fn a_zoned_dataset_gets_nothing_that_would_be_the_nodes() {
        for name in ["zoned", "sharenfs", "sharesmb"] {
            assert_eq!(judge(name, true), Carried::No, "{name}");
            assert!(!may_set(name, "on", true), "{name}");
        }
        for name in ["mountpoint", "canmount", "devices", "setuid", "exec"] {
            assert_eq!(judge(name, true), Carried::OfZone, "{name}");
            assert!(may_set(name, "on", true) && !may_set(name, "two\nlines", true), "{name}");
        }
        assert!(!may_set("mountpoint", "/etc", false));
        for (name, is_zoned, want) in [
            ("quota", true, Carried::Word),
            ("exec", false, Carried::Word),
            ("mountpoint", false, Carried::No),
            ("zoned", false, Carried::No),
            ("volsize", false, Carried::No),
            ("encryption", false, Carried::No),
            ("keylocation", false, Carried::No),
            ("com.example:note", true, Carried::Text),
            ("com.example:no\tte", true, Carried::No),
            ("Com:x", true, Carried::No),
        ] {
            assert_eq!(judge(name, is_zoned), want, "{name}");
        }
        assert!(may_set("a:b", "two words", true) && !may_set("a:b", "two\nlines", true));
        assert!(!is_word("mountpoint") && !is_word("sharenfs") && !is_word("a:b"));
        assert!(plain(&[b'a', 0xff]).is_none());
    }
}
