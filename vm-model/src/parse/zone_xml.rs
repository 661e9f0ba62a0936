// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/etc/zones/NAME.xml`: a zone's configuration, as a list of its elements in their order.
//!
//! The result is that of the deployed parser in all recorded cases but these, which are errors here:
//!
//! * *A file that is cut off* (six cases). The deployed parser never learns that its input has ended,
//!   and shows a VM without the missing fields, which listeners take for changes. Here the VM keeps
//!   its last good object until the whole file is there.
//! * *An entity that nothing declares* (one case). The deployed parser drops it, as it never reads the
//!   DTD that could declare it. A value with a hole is worse than none, and no writer of zone
//!   configurations uses entities of its own.
//! * *An internal DTD subset* (two cases), which could declare entities that expand without bound, or
//!   default values of attributes. Zone configurations have none.

mod model;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::xml_tag::{attributes, is_blank, is_char, is_name, reference};
use crate::js::lossy;
use crate::origin::{Origin, ParseError};
use model::Writer;

pub use model::{Element, ZoneXml};

/// The largest file.
pub const MAX_BYTES: u64 = 8 * 1024 * 1024;
/// How deep elements may be nested.
pub const MAX_DEPTH: usize = 64;

/// Parses a document. Bytes that are not UTF-8 become U+FFFD, whatever encoding the file declares.
pub fn parse(bytes: &[u8]) -> Result<ZoneXml, ParseError> {
    if bytes.len() as u64 > MAX_BYTES {
        return Err(ParseError::content(Origin::ZoneXml, format!("larger than {MAX_BYTES} bytes")));
    }
    let text = lossy(bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    Document {
        text,
        at: 0,
        lines: (0, 1),
        path: Vec::new(),
        zone: Writer::new(text.len()),
        seen: Seen::default(),
    }
    .read()
}

#[derive(Default)]
struct Seen {
    root: bool,
    doctype: bool,
}

/// A document being read.
struct Document<'a> {
    text: &'a str,
    /// The offset of the current event.
    at: usize,
    /// An offset and its line, from which the next line is counted.
    lines: (usize, u32),
    /// The names of the open elements.
    path: Vec<String>,
    zone: Writer,
    seen: Seen,
}

impl Document<'_> {
    fn read(mut self) -> Result<ZoneXml, ParseError> {
        let mut reader = Reader::from_str(self.text);
        let config = reader.config_mut();
        config.check_end_names = true;
        config.check_comments = true;
        config.allow_unmatched_ends = false;
        config.allow_dangling_amp = false;
        loop {
            self.at = reader.buffer_position() as usize;
            let event = match reader.read_event() {
                Ok(event) => event,
                Err(e) => {
                    let offset = reader.error_position() as usize;
                    return Err(self.error(offset, e.to_string()));
                }
            };
            match event {
                Event::Start(tag) => self.start(&tag)?,
                Event::Empty(tag) => {
                    self.start(&tag)?;
                    self.end()?;
                }
                Event::End(_) => self.end()?,
                Event::Text(text) => self.text(&text)?,
                Event::GeneralRef(name) => self.general_ref(&name)?,
                Event::CData(data) => {
                    self.inside("CDATA")?;
                    self.characters(&data)?;
                }
                Event::Comment(text) => self.characters(&text)?,
                Event::PI(pi) => {
                    if !is_name(pi.target()) || pi.target().eq_ignore_ascii_case("xml") {
                        return self.refuse("a processing instruction without a name of its own");
                    }
                    self.characters(&pi)?;
                }
                Event::Decl(decl) => self.declaration(&decl)?,
                Event::DocType(text) => self.doctype(&text)?,
                Event::Eof => return self.finish(),
            }
        }
    }

    fn error(&mut self, offset: usize, what: impl Into<String>) -> ParseError {
        let line = self.line(offset);
        ParseError::line(Origin::ZoneXml, line, what)
    }

    /// Refuses the document because of the current event.
    fn refuse<T>(&mut self, what: impl Into<String>) -> Result<T, ParseError> {
        Err(self.error(self.at, what))
    }

    /// Returns the line of an offset.
    fn line(&mut self, offset: usize) -> u32 {
        let offset = offset.min(self.text.len());
        let (from, line) = if offset >= self.lines.0 { self.lines } else { (0, 1) };
        let between = self.text.as_bytes().get(from..offset).unwrap_or_default();
        let line = line + between.iter().filter(|b| **b == b'\n').count() as u32;
        self.lines = (offset, line);
        line
    }

    fn start(&mut self, tag: &BytesStart<'_>) -> Result<(), ParseError> {
        let raw: &str = tag;
        let name = tag.name().into_inner().to_owned();
        if !is_name(&name) {
            return self.refuse(format!("{name:?} is no name of an element"));
        }
        if self.path.is_empty() && std::mem::replace(&mut self.seen.root, true) {
            return self.refuse(format!("expected the end after the zone element, found <{name}>"));
        }
        if self.path.len() == MAX_DEPTH {
            return self.refuse(format!("nested deeper than {MAX_DEPTH}"));
        }
        let attributes = attributes(raw.get(name.len()..).unwrap_or_default()).map_err(|e| {
            self.error(self.at + 1 + name.len() + e.offset, format!("<{name}>: {}", e.what))
        })?;
        if self.path.is_empty() && name != "zone" {
            return self.refuse(format!("expected a zone element, found <{name}>"));
        }
        let line = self.line(self.at);
        self.path.push(name);
        self.keep(attributes, line)
    }

    /// Keeps the element that was just opened, if it counts at its place.
    fn keep(&mut self, mut attributes: Vec<(String, String)>, line: u32) -> Result<(), ParseError> {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        match path[..] {
            ["zone"] => check_zone(&attributes).or_else(|what| self.refuse(what))?,
            ["zone", "attr" | "rctl" | "dataset"]
            | ["zone", "filesystem", "fsoption"]
            | ["zone", "network" | "device", "net-attr"] => {
                attributes.retain(|(name, _)| matches!(&**name, "name" | "value"));
            }
            ["zone", "filesystem" | "network" | "device"] | ["zone", "rctl", "rctl-value"] => {}
            [.., "device"] => {
                return self.refuse("a device element that is not directly under zone");
            }
            _ => return Ok(()),
        }
        if let Some(name) = self.path.last() {
            self.zone.push(self.path.len(), name, line, &attributes);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), ParseError> {
        match self.path.pop() {
            Some(_) => Ok(()),
            None => self.refuse("an end tag without a start tag"),
        }
    }

    fn text(&mut self, text: &str) -> Result<(), ParseError> {
        if self.path.is_empty() && !text.chars().all(is_blank) {
            let expected =
                if self.seen.root { "the end after the zone element" } else { "a zone element" };
            // The text may be a secret.
            return self.refuse(format!("expected {expected}, found text"));
        }
        if text.contains("]]>") {
            return self.refuse("]]> outside CDATA");
        }
        self.characters(text)
    }

    fn characters(&mut self, text: &str) -> Result<(), ParseError> {
        match text.char_indices().find(|(_, c)| !is_char(*c)) {
            Some((i, c)) => {
                let what = format!("the character {:#x} is not allowed", u32::from(c));
                Err(self.error(self.at + i, what))
            }
            None => Ok(()),
        }
    }

    fn general_ref(&mut self, name: &str) -> Result<(), ParseError> {
        self.inside("a reference")?;
        if reference(name).is_some() {
            return Ok(());
        }
        let name: String = name.chars().take(40).collect();
        self.refuse(format!("unknown reference &{name};"))
    }

    fn inside(&mut self, what: &str) -> Result<(), ParseError> {
        if self.path.is_empty() {
            return self.refuse(format!("{what} outside the zone element"));
        }
        Ok(())
    }

    /// A declaration is the first thing in a document. Its encoding is ignored.
    fn declaration(&mut self, text: &str) -> Result<(), ParseError> {
        if self.at != 0 {
            return self.refuse("an XML declaration that is not at the beginning");
        }
        let known = ["version", "encoding", "standalone"];
        let found = attributes(text.strip_prefix("xml").unwrap_or(text))
            .map_err(|e| self.error(e.offset, format!("<?xml: {}", e.what)))?;
        let mut places = found.iter().map(|(name, _)| known.iter().position(|k| k == name));
        if places.next() != Some(Some(0)) || !places.all(|place| place.is_some_and(|p| p > 0)) {
            return self.refuse("<?xml: expected version, then encoding and standalone or neither");
        }
        Ok(())
    }

    /// A document type may name a DTD, which is never loaded, and may not declare anything itself.
    fn doctype(&mut self, text: &str) -> Result<(), ParseError> {
        if self.seen.root || std::mem::replace(&mut self.seen.doctype, true) {
            let what = "a document type that is not before the zone element, or a second one";
            return self.refuse(what);
        }
        if text.contains('[') {
            return self.refuse("a document type with declarations of its own is not accepted");
        }
        self.characters(text)
    }

    fn finish(mut self) -> Result<ZoneXml, ParseError> {
        let expected = match (self.path.pop(), self.seen.root) {
            (Some(name), _) => format!("</{name}>"),
            (None, false) => "a zone element".to_owned(),
            (None, true) => return Ok(self.zone.finish()),
        };
        self.at = self.text.len();
        self.refuse(format!("expected {expected}, found the end of the file"))
    }
}

/// Checks the attributes of the zone element; returns what is wrong with them.
fn check_zone(attributes: &[(String, String)]) -> Result<(), String> {
    let get = |wanted| attributes.iter().find(|(name, _)| name == wanted);
    if let Some((name, _)) = get("network").or(get("fs")) {
        return Err(format!("<zone> cannot have an attribute {name:?}"));
    }
    match get("brand") {
        Some((_, brand)) if !brand.is_empty() => Ok(()),
        _ => Err("<zone>: expected an attribute \"brand\"".to_owned()),
    }
}

#[cfg(test)]
mod tests;
