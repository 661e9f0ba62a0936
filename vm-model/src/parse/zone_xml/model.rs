// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A zone's configuration as it is kept: one text, since a tree of its elements takes ten times the memory.

use std::fmt::Write;

/// Begins an element directly inside the zone. XML has none of these three characters.
const ELEMENT: char = '\u{1d}';
/// Begins an element inside the last one.
const INSIDE: char = '\u{1e}';
/// Begins each text of an element: its line, then the names and values of its attributes.
const TEXT: char = '\u{1f}';

/// A zone's configuration: the zone element and the known elements in it, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ZoneXml(Box<str>);

/// An element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element<'a> {
    own: &'a str,
    inside: &'a str,
}

impl<'a> Element<'a> {
    fn of(text: &'a str) -> Self {
        let (own, inside) = text.split_once(INSIDE).unwrap_or((text, ""));
        Element { own, inside }
    }

    /// Returns its name: `attr`, `network`.
    pub fn name(&self) -> &'a str {
        self.own.split(TEXT).next().unwrap_or_default()
    }

    /// Returns its line, counted from 1.
    pub fn line(&self) -> u32 {
        self.own.split(TEXT).nth(1).and_then(|line| line.parse().ok()).unwrap_or_default()
    }

    /// Returns the names and values of its attributes, in their order.
    pub fn attributes(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let mut texts = self.own.split(TEXT).skip(2);
        std::iter::from_fn(move || texts.next().zip(texts.next()))
    }

    /// Returns the value of an attribute.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.attributes().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// Returns the known elements in it.
    pub fn inside(&self) -> impl Iterator<Item = Element<'a>> + use<'a> {
        self.inside.split(INSIDE).filter(|text| !text.is_empty()).map(Element::of)
    }
}

impl ZoneXml {
    /// Returns the zone element.
    pub fn zone(&self) -> Element<'_> {
        Element::of(self.0.split(ELEMENT).next().unwrap_or_default())
    }

    /// Returns the known elements directly inside the zone.
    pub fn elements(&self) -> impl Iterator<Item = Element<'_>> {
        self.0.split(ELEMENT).skip(1).map(Element::of)
    }

    /// Returns the brand in the file, which decides the default fields.
    pub fn brand(&self) -> &str {
        self.zone().get("brand").unwrap_or_default()
    }

    /// Returns the values of the attrs of these names: of several the last one's.
    pub fn attrs<const N: usize>(&self, names: [&str; N]) -> [Option<&str>; N] {
        let mut values = [None; N];
        for attr in self.elements().filter(|it| it.name() == "attr") {
            let name = attr.get("name");
            let places = names.iter().zip(&mut values).filter(|(it, _)| Some(**it) == name);
            places.for_each(|(_, value)| *value = attr.get("value"));
        }
        values
    }

    /// Returns an attribute of each element of this name, in the order of the file.
    pub fn each(&self, element: &str, attribute: &str) -> impl Iterator<Item = &str> {
        self.elements()
            .filter(move |it| it.name() == element)
            .filter_map(move |it| it.get(attribute))
    }
}

/// Writes a configuration.
#[derive(Debug)]
pub(super) struct Writer(String);

impl Writer {
    /// Returns an empty one for a file of this size.
    pub fn new(bytes: usize) -> Self {
        Writer(String::with_capacity(bytes))
    }

    /// Appends an element: the zone at depth 1, those inside it at 2, those inside the last one at 3.
    pub fn push(&mut self, depth: usize, name: &str, line: u32, attributes: &[(String, String)]) {
        self.0.extend([None, None, Some(ELEMENT), Some(INSIDE)].get(depth).copied().flatten());
        let _writing_to_memory_cannot_fail = write!(self.0, "{name}{TEXT}{line}");
        for (name, value) in attributes {
            self.0.extend([TEXT]);
            self.0.push_str(name);
            self.0.extend([TEXT]);
            self.0.push_str(value);
        }
    }

    pub fn finish(self) -> ZoneXml {
        // An exact copy: what the buffer has beyond it would stay as a hole.
        ZoneXml(Box::from(self.0.as_str()))
    }
}
