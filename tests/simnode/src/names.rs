// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The names that zfs(8) takes. Pure.

use crate::datasets::owner;
use crate::error::NodeError;

/// A name, or one part of a path, is shorter.
pub(crate) const LONGEST: usize = 256;

/// Says what zfs(8) refuses in a name. It takes letters of both cases, digits, blanks and `-_.:`, also
/// `.` and `..`; names that differ in case only are two.
pub(crate) fn check_name(verb: &str, name: &str) -> Result<(), NodeError> {
    let refused = |why: String| Err(NodeError::refused(format!("cannot {verb} '{name}': {why}")));
    let (dataset, rest) = name.split_at(owner(name).len());
    let fine = |c: &char| c.is_ascii_alphanumeric() || "-_.: ".contains(*c);
    let odd = |text: &str| text.chars().find(|c| *c != '/' && !fine(c));
    if name.len() >= LONGEST {
        return refused("name is too long".to_string());
    }
    if dataset.starts_with('/') {
        return refused("leading slash in name".to_string());
    }
    if name.ends_with('/') || rest.contains('/') {
        return refused("trailing slash in name".to_string());
    }
    if let Some(c) = odd(dataset).or_else(|| rest.chars().skip(1).find(|c| !fine(c) && *c != '@')) {
        return refused(format!("invalid character '{c}' in name"));
    }
    if rest.matches('@').count() > 1 {
        return refused("multiple '@' delimiters in name".to_string());
    }
    if dataset.split('/').any(str::is_empty) || rest.len() == 1 {
        return refused("empty component in name".to_string());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_zfs_takes() {
        for name in
            "zones/A zones/a.b zones/a:b zones/-x zones/_ zones/. zones/.. zones/a@.. zones/a@S:1"
                .split(' ')
                .chain(["zones/a b", "zones/a ", "zones/ ", "zones/a@s 1"])
        {
            assert!(check_name("create", name).is_ok(), "{name:?}");
        }
        let long = format!("zones/{}", "x".repeat(LONGEST));
        for (name, why) in [
            ("zones/a\tb", "invalid character '\t'"),
            ("zones/a\nb", "invalid character '\n'"),
            ("zones/\u{fc}", "invalid character"),
            ("zones/a%b", "invalid character '%'"),
            ("zones/a@s%", "invalid character '%'"),
            ("zones/a=b", "invalid character '='"),
            ("zones//a", "empty component"),
            ("zones/a@", "empty component"),
            ("/zones/a", "leading slash"),
            ("zones/a/", "trailing slash"),
            ("zones/a@b/c", "trailing slash"),
            ("zones/a@b@c", "multiple '@' delimiters"),
            (&long, "too long"),
        ] {
            let refused = check_name("create", name).unwrap_err().to_string();
            assert!(refused.contains(why), "{name:?}: {refused}");
        }
    }
}
