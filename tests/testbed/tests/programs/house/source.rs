// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The Rust files of the repository, split into code, comments and strings.

use std::path::{Path, PathBuf};

/// What a stretch of source text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Code,
    /// `//!`, which belongs to no item.
    InnerDoc,
    Comment,
    Text,
}

/// A stretch of source text; it does not go beyond its line, unless it is a string.
#[derive(Debug)]
pub struct Part {
    pub line: usize,
    pub kind: Kind,
    pub text: String,
}

/// Returns the root of the repository: the folder of the workspace's `Cargo.toml`.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_root = |dir: &&Path| {
        let manifest = std::fs::read_to_string(dir.join("Cargo.toml"));
        manifest.is_ok_and(|text| text.contains("[workspace]\n"))
    };
    here.ancestors().find(is_root).unwrap().to_owned()
}

/// Returns the files below `dir` with this extension, sorted, as paths relative to `root`.
pub fn files(root: &Path, dir: &str, extension: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut dirs = vec![root.join(dir)];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                dirs.push(path);
            } else if path.extension().is_some_and(|it| it == extension) {
                found.push(path.strip_prefix(root).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

/// Splits source text into its parts.
pub fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut line = 1;
    let mut rest = text;
    while !rest.is_empty() {
        let (kind, len) = next(rest);
        let text = &rest[..len];
        parts.push(Part { line, kind, text: text.to_owned() });
        line += text.matches('\n').count();
        rest = &rest[len..];
    }
    parts
}

/// Returns the kind and the length of the part that `text` begins with.
fn next(text: &str) -> (Kind, usize) {
    let to_line_end = text.find('\n').unwrap_or(text.len());
    if text.starts_with("//!") {
        return (Kind::InnerDoc, to_line_end);
    }
    if text.starts_with("//") {
        return (Kind::Comment, to_line_end);
    }
    if text.starts_with("/*") {
        return (Kind::Comment, text.find("*/").map_or(text.len(), |at| at + 2));
    }
    if let Some(len) = string(text) {
        return (Kind::Text, len);
    }
    // Code up to what may begin something else; a word is taken whole, so that the `r` of `for"`
    // begins no raw string.
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\n' {
            return (Kind::Code, at + 1);
        }
        if at > 0
            && (string(&text[at..]).is_some()
                || text[at..].starts_with("//")
                || text[at..].starts_with("/*"))
        {
            return (Kind::Code, at);
        }
        if c == '\'' {
            let len = character(&text[at..]);
            while chars.next_if(|(next, _)| *next < at + len).is_some() {}
        } else if c.is_alphanumeric() || c == '_' {
            while chars.next_if(|(_, c)| c.is_alphanumeric() || *c == '_').is_some() {}
        }
    }
    (Kind::Code, text.len())
}

/// Returns the length of the string literal that `text` begins with.
fn string(text: &str) -> Option<usize> {
    let body = text.trim_start_matches(['b', 'c']);
    let prefix = text.len() - body.len();
    if prefix > 1 {
        return None;
    }
    if let Some(raw) = body.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        raw[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let start = prefix + 1 + hashes + 1;
        return Some(text[start..].find(&end).map_or(text.len(), |at| start + at + end.len()));
    }
    body.strip_prefix('"')?;
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(prefix + 1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at + 1),
            _ => {}
        }
    }
    Some(text.len())
}

/// Returns the length of a character literal, or 1 for the mark of a lifetime.
pub fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, escaped))) => {
            let from = at + escaped.len_utf8();
            text[from..].find('\'').map_or(1, |end| from + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

#[test]
fn every_source_file_begins_with_its_licence_and_has_more() {
    const NOTICE: &str = "// This Source Code Form is subject to the terms of the Mozilla Public\n";
    let root = root();
    let is_right = |path: &String| {
        let text = std::fs::read_to_string(root.join(path)).unwrap();
        text.starts_with(NOTICE) && text.lines().count() > 4
    };
    let wrong: Vec<String> =
        files(&root, ".", "rs").into_iter().filter(|it| !is_right(it)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn code_comments_and_strings_are_told_apart() {
    let text = "//! inner\nuse a::b; // beside\nlet c = '\"'; f(\"x // y\", r#\"a\"b\"#, &'a z);\n/* é */ g";
    let shown: Vec<(usize, Kind, String)> =
        parts(text).into_iter().map(|part| (part.line, part.kind, part.text)).collect();
    let texts = |kind| -> Vec<&str> {
        shown.iter().filter(|it| it.1 == kind).map(|it| it.2.as_str()).collect()
    };
    assert_eq!(texts(Kind::InnerDoc), ["//! inner"]);
    assert_eq!(texts(Kind::Comment), ["// beside", "/* é */"]);
    assert_eq!(texts(Kind::Text), ["\"x // y\"", "r#\"a\"b\"#"]);
    assert_eq!(shown.last().unwrap(), &(4, Kind::Code, " g".to_owned()));
}
