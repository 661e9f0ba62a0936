// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The elements of a zone's configuration, with the names and texts of the file.

/// The names and values of attributes, in their order.
pub type Attributes = Vec<(String, String)>;

/// A zone's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ZoneXml {
    /// The attributes of the zone element.
    pub attributes: Attributes,
    /// The known elements in the zone element, in their order.
    pub items: Vec<Item>,
}

/// An element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its line, counted from 1.
    pub line: u32,
    /// The element.
    pub what: What,
}

/// The name and the value of an element, which may both be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The attribute `name`.
    pub name: Option<String>,
    /// The attribute `value`.
    pub value: Option<String>,
    /// Its line, counted from 1.
    pub line: u32,
}

/// The known elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// `attr`
    Attr(Pair),
    /// An `rctl-value` of an `rctl`
    Rctl {
        /// The name of the rctl.
        name: Option<String>,
        /// The attributes of the value.
        attributes: Attributes,
    },
    /// The name of a `dataset`
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

/// Returns the value of an attribute.
pub fn attribute<'a>(attributes: &'a Attributes, name: &str) -> Option<&'a str> {
    attributes.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
}

impl ZoneXml {
    /// Returns the brand in the file, which decides the default fields.
    pub fn brand(&self) -> &str {
        attribute(&self.attributes, "brand").unwrap_or_default()
    }

    /// Returns the value of the last attr of this name.
    pub fn attr(&self, name: &str) -> Option<&str> {
        let value = self.items.iter().rev().find_map(|item| match &item.what {
            What::Attr(pair) if pair.name.as_deref() == Some(name) => Some(pair.value.as_deref()),
            _ => None,
        });
        value.flatten()
    }

    /// Returns the paths of the devices, in the order of the file.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        self.items.iter().filter_map(|item| match &item.what {
            What::Device { attributes, .. } => attribute(attributes, "match"),
            _ => None,
        })
    }

    /// Returns the names of the delegated datasets, in the order of the file.
    pub fn dataset_names(&self) -> impl Iterator<Item = &str> {
        self.items.iter().filter_map(|item| match &item.what {
            What::Dataset(name) => name.as_deref(),
            _ => None,
        })
    }

    /// Returns the last element, to complete it.
    pub(super) fn last(&mut self) -> Option<&mut What> {
        self.items.last_mut().map(|item| &mut item.what)
    }
}
