// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a zone's configuration says, still in its own words.

/// Attributes as they stand in a tag: name and value, in their order.
pub type Attributes = Vec<(String, String)>;

/// One zone's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ZoneXml {
    /// The attributes of the zone element.
    pub attributes: Attributes,
    /// What the zone element holds, as far as it is known, in file order.
    pub items: Vec<Item>,
}

/// One thing a configuration says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Where, counted from 1.
    pub line: u32,
    /// What.
    pub what: What,
}

/// A name and a value, either of which may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The attribute `name`.
    pub name: Option<String>,
    /// The attribute `value`.
    pub value: Option<String>,
    /// Where, counted from 1.
    pub line: u32,
}

/// The elements that count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// `attr`
    Attr(Pair),
    /// One `rctl-value` of an `rctl`
    Rctl {
        /// The name of the rctl.
        name: Option<String>,
        /// The attributes of the value.
        attributes: Attributes,
    },
    /// `dataset` by its name
    Dataset(Option<String>),
    /// `filesystem`
    Filesystem {
        /// Its attributes.
        attributes: Attributes,
        /// The names of its fsoptions.
        options: Vec<Option<String>>,
    },
    /// `network`
    Network {
        /// Its attributes.
        attributes: Attributes,
        /// Its net-attrs.
        net_attrs: Vec<Pair>,
    },
    /// `device`
    Device {
        /// Its attributes.
        attributes: Attributes,
        /// Its net-attrs.
        net_attrs: Vec<Pair>,
    },
}

/// The value of one of these attributes.
pub fn attribute<'a>(attributes: &'a Attributes, name: &str) -> Option<&'a str> {
    attributes.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
}

impl ZoneXml {
    /// The brand the file names; it decides what is there by default.
    pub fn brand(&self) -> &str {
        attribute(&self.attributes, "brand").unwrap_or_default()
    }

    /// The value of the last attr of this name.
    pub fn attr(&self, name: &str) -> Option<&str> {
        let value = self.items.iter().rev().find_map(|item| match &item.what {
            What::Attr(pair) if pair.name.as_deref() == Some(name) => Some(pair.value.as_deref()),
            _ => None,
        });
        value.flatten()
    }
}

impl ZoneXml {
    /// What was found last, to be completed.
    pub(super) fn last(&mut self) -> Option<&mut What> {
        self.items.last_mut().map(|item| &mut item.what)
    }
}
