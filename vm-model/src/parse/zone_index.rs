// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/etc/zones/index`: the second source of which zones exist. A line is `NAME:STATE:ZONEPATH:UUID`;
//! SmartOS adds `:BRAND:IP-TYPE:DEBUG-ID`.

/// One zone of the index; the global zone is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexLine<'a> {
    /// The zone's name.
    pub name: &'a str,
    /// Its uuid; `None` for a zone that is not a VM.
    pub uuid: Option<&'a str>,
}

/// Returns the zones of an index, in its order. Leaves out comments and lines that are not UTF-8.
pub fn lines(index: &[u8]) -> impl Iterator<Item = IndexLine<'_>> {
    index.split(|byte| *byte == b'\n').filter_map(|line| {
        let line = std::str::from_utf8(line).ok()?.trim_end();
        let name = line.split(':').next().filter(|name| !name.is_empty())?;
        if name == "global" || name.starts_with('#') {
            return None;
        }
        // The zonepath may have colons, and contain the uuid as one of its names.
        let uuid = line.split(':').skip(3).find(|uuid| is_uuid(uuid));
        Some(IndexLine { name, uuid })
    })
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36 && !text.contains('/')
}

/// Returns true if an index has the line of any zone, `global` included. One that has none is being written, or is no
/// index: no zone is gone because it is not there.
pub fn is_written(index: &[u8]) -> bool {
    index.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"global:"))
        || lines(index).next().is_some()
}

/// Returns true if an index has a line for this zone.
pub fn lists(index: &[u8], name: &str) -> bool {
    name == "global" || lines(index).any(|line| line.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const U: &str = "f8428503-41e2-426e-b0f9-a5d849b545f6";

    #[test]
    fn names_and_uuids() {
        let text = format!(
            "# comment\nglobal:installed:/:\nz1:running:/zones/z1:{U}\nnone:installed:/zones/none:\n\nc:installed:/a:b:{U}\n\
             s:installed:/zones/{U}:{U}:lx:excl:17\nbare:installed:/zones/bare::lx:excl:18\n"
        );
        let found: Vec<_> = lines(text.as_bytes()).map(|line| (line.name, line.uuid)).collect();
        let u = Some(U);
        assert_eq!(found, [("z1", u), ("none", None), ("c", u), ("s", u), ("bare", None)]);
        assert!(lists(text.as_bytes(), "z1") && lists(text.as_bytes(), "global"));
        assert!(is_written(text.as_bytes()) && is_written(b"global:installed:/\n"));
        assert!(!is_written(b"") && !is_written(b"# comment\n\n") && is_written(b"z1:installed"));
        assert!(!lists(text.as_bytes(), "z") && !lists(text.as_bytes(), U) && !lists(b"", "z1"));
    }
}
