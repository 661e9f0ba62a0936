// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The texts inside XML tags: attributes, references, names.
//!
//! quick-xml's own reader of attributes accepts what a well-formed document cannot have: attributes
//! without a blank between them, `<` and control characters in values, and any text as a name. It
//! gives no position inside a value. So the attributes are read here; the tests have these cases.

/// The most attributes one element may have.
pub const MAX_ATTRIBUTES: usize = 256;

/// Why a tag is not well formed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagFault {
    /// Where, in bytes from the beginning of the text.
    pub offset: usize,
    /// What was expected or found.
    pub what: String,
}

/// Returns true for white space of XML.
pub fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// Returns true for a character that a document may have.
pub fn is_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// Returns true for a name of an element or attribute.
pub fn is_name(text: &str) -> bool {
    let start = |c: char| {
        matches!(c, ':' | '_' | 'A'..='Z' | 'a'..='z' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}'
            | '\u{f8}'..='\u{2ff}' | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}'
            | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}'
            | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
    };
    let inner = |c: char| {
        start(c)
            || matches!(c, '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
    };
    text.starts_with(start) && text.chars().all(inner)
}

/// Returns the character that `&NAME;` stands for: one of the five that XML defines, or a number.
pub fn reference(name: &str) -> Option<char> {
    let code = match name {
        "amp" => return Some('&'),
        "lt" => return Some('<'),
        "gt" => return Some('>'),
        "apos" => return Some('\''),
        "quot" => return Some('"'),
        _ => name.strip_prefix('#')?,
    };
    let (digits, radix) = code.strip_prefix('x').map_or((code, 10), |hex| (hex, 16));
    if !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    char::from_u32(u32::from_str_radix(digits, radix).ok()?).filter(|c| is_char(*c))
}

/// Parses the attributes of a tag: the text after its name.
pub fn attributes(text: &str) -> Result<Vec<(String, String)>, TagFault> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut rest = text;
    loop {
        let fault = |at: &str, what: String| TagFault { offset: text.len() - at.len(), what };
        let next = rest.trim_start_matches(is_blank);
        if next.is_empty() {
            return Ok(found);
        }
        if next.len() == rest.len() {
            return Err(fault(next, "expected a blank before an attribute".into()));
        }
        let end = next.find(|c| is_blank(c) || c == '=').unwrap_or(next.len());
        let (name, after) = next.split_at(end);
        if !is_name(name) {
            // The text may be half of a value, and values may be secrets.
            return Err(fault(next, "expected the name of an attribute".into()));
        }
        if found.iter().any(|(n, _)| n == name) {
            return Err(fault(next, format!("the attribute {name:?} is there twice")));
        }
        if found.len() == MAX_ATTRIBUTES {
            return Err(fault(next, format!("more than {MAX_ATTRIBUTES} attributes")));
        }
        let after = after.trim_start_matches(is_blank);
        let Some(after) = after.strip_prefix('=') else {
            return Err(fault(after, "expected '=' after the name of an attribute".into()));
        };
        let after = after.trim_start_matches(is_blank);
        let quoted = after.chars().next().filter(|c| matches!(c, '"' | '\'')).and_then(|quote| {
            let inner = after.get(1..)?;
            Some((inner.split_once(quote)?, inner))
        });
        let Some(((raw, after), at)) = quoted else {
            return Err(fault(
                after,
                format!("expected a value in quotes for the attribute {name:?}"),
            ));
        };
        let value =
            value(raw).map_err(|e| TagFault { offset: text.len() - at.len() + e.offset, ..e })?;
        found.push((name.to_owned(), value));
        rest = after;
    }
}

/// Returns the value of an attribute: references are replaced, and line ends and tabs become blanks.
fn value(raw: &str) -> Result<String, TagFault> {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(c) = rest.chars().next() {
        let fault = |what: String| TagFault { offset: raw.len() - rest.len(), what };
        let mut after = rest.get(c.len_utf8()..).unwrap_or_default();
        match c {
            '<' => return Err(fault("'<' inside a value".into())),
            '&' => {
                let Some((name, next)) = after.split_once(';') else {
                    return Err(fault("'&' that begins no reference".into()));
                };
                let Some(c) = reference(name) else {
                    let name: String = name.chars().take(40).collect();
                    return Err(fault(format!("unknown reference &{name};")));
                };
                out.push(c);
                after = next;
            }
            '\r' => {
                after = after.strip_prefix('\n').unwrap_or(after);
                out.push(' ');
            }
            '\t' | '\n' => out.push(' '),
            c if is_char(c) => out.push(c),
            c => return Err(fault(format!("the character {:#x} is not allowed", u32::from(c)))),
        }
        rest = after;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        attributes(text).unwrap()
    }

    #[test]
    fn values_follow_the_rules_of_xml() {
        let found = pairs(" a=\"x\r\ny\tz\" b = '&lt;&amp;&#9;&#x1F980;\"' ");
        assert_eq!(found, [("a".into(), "x y z".into()), ("b".into(), "<&\t\u{1f980}\"".into())]);
        assert_eq!(pairs(" \n"), []);
    }

    #[test]
    fn refuses_what_is_not_well_formed_at_its_position() {
        let table = [
            (" a=\"1\"b=\"2\"", 6, "expected a blank"),
            (" a=\"1\" a=\"2\"", 7, "there twice"),
            (" a=1", 3, "in quotes"),
            (" a", 2, "expected '='"),
            (" a=\"1", 3, "in quotes"),
            (" 1a=\"\"", 1, "name of an attribute"),
            (" a=\"x<y\"", 5, "'<'"),
            (" a=\"&nope;\"", 4, "&nope;"),
            (" a=\"& \"", 4, "no reference"),
            (" a=\"&#0;\"", 4, "&#0;"),
            (" a=\"&#xd800;\"", 4, "unknown reference"),
            (" a=\"&#+5;\"", 4, "unknown reference"),
            (" a=\"\u{1}\"", 4, "0x1"),
        ];
        for (text, offset, what) in table {
            let fault = attributes(text).unwrap_err();
            assert_eq!(fault.offset, offset, "{text}");
            assert!(fault.what.contains(what), "{text}: {}", fault.what);
        }
        let many: String = (0..=MAX_ATTRIBUTES).map(|i| format!(" a{i}=''")).collect();
        assert!(attributes(&many).is_err());
    }

    proptest! {
        #[test]
        fn never_panics(text in "[ \\t\\r\\na-c=\"'&;#x0-9<>\u{e9}\u{1f980}\\x00]{0,60}") {
            let _ = attributes(&text);
        }
    }
}
