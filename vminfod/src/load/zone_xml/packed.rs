// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A configuration as it is kept from one reading to the next: in a tenth of the memory of its tree.
//! It is unpacked for each composition, which is rare beside that.
//!
//! What it says in the same place in every configuration of its kind (elements, lines, names) is
//! its shape: one text that all of them share. The rest is its own ([`values`](super::values)).
//!
//! ```text
//!  shape  = record*          record = 01 KIND LINE name*
//!  name   = 02 TEXT          TEXT   = 03 (not there), 04 CODE (a word), or the text itself
//! ```

use std::fmt::Write;
use std::str::Split;
use std::sync::Arc;

use super::model::{Attributes, Item, Pair, What, ZoneXml};
use super::shapes;
use super::values::{self, Values, coded, decoded};

const RECORD: char = '\u{1}';
const FIELD: char = '\u{2}';
const NONE: &str = "\u{3}";

/// A configuration in little memory; equal when it says the same in the same lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedXml {
    shape: Arc<str>,
    values: Box<[u8]>,
}

impl From<&ZoneXml> for PackedXml {
    fn from(xml: &ZoneXml) -> Self {
        let (shape, values) = (String::with_capacity(2048), Vec::with_capacity(2048));
        let mut out = Packer { shape, values };
        out.record('Z', 0);
        out.attributes(&xml.attributes);
        for item in &xml.items {
            out.item(item);
        }
        // A copy of just its size: a buffer that is cut leaves its rest behind, beside what stays.
        PackedXml { shape: shapes::shared(&out.shape), values: out.values.as_slice().into() }
    }
}

struct Packer {
    shape: String,
    values: Vec<u8>,
}

impl Packer {
    fn record(&mut self, kind: char, line: u32) {
        self.shape.extend([RECORD, kind]);
        // Writing to memory cannot fail.
        let _infallible = write!(self.shape, "{line}");
    }

    fn name(&mut self, text: Option<&str>) {
        self.shape.push(FIELD);
        self.shape.push_str(&text.map_or(NONE.into(), coded));
    }

    fn value(&mut self, text: Option<&str>) {
        values::push(&mut self.values, text);
    }

    fn attributes(&mut self, attributes: &Attributes) {
        for (name, value) in attributes {
            self.name(Some(name));
            self.value(Some(value));
        }
    }

    fn pair(&mut self, kind: char, line: u32, pair: &Pair) {
        self.record(kind, line);
        self.name(pair.name.as_deref());
        self.value(pair.value.as_deref());
    }

    fn item(&mut self, item: &Item) {
        match &item.what {
            What::Attr(pair) => self.pair('A', item.line, pair),
            What::Rctl { name, attributes } => {
                self.record('R', item.line);
                self.name(name.as_deref());
                self.attributes(attributes);
            }
            What::Dataset(name) => {
                self.record('D', item.line);
                self.value(name.as_deref());
            }
            What::Filesystem { attributes, options } => {
                self.record('F', item.line);
                self.attributes(attributes);
                for option in options {
                    self.record('O', 0);
                    self.value(option.as_deref());
                }
            }
            What::Network { attributes, net_attrs } => {
                self.record('N', item.line);
                self.attributes(attributes);
                net_attrs.iter().for_each(|pair| self.pair('P', pair.line, pair));
            }
            What::Device { attributes, net_attrs } => {
                self.record('V', item.line);
                self.attributes(attributes);
                net_attrs.iter().for_each(|pair| self.pair('P', pair.line, pair));
            }
        }
    }
}

/// One record of a shape: its kind, its line, its names.
type Record<'a> = (&'a str, u32, Split<'a, char>);

impl PackedXml {
    fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.shape.split(RECORD).skip(1).map(|record| {
            let mut names = record.split(FIELD);
            let head = names.next().unwrap_or_default();
            let (kind, line) = head.split_at(head.len().min(1));
            (kind, line.parse().unwrap_or(0), names)
        })
    }

    /// The configuration itself.
    pub fn unpack(&self) -> ZoneXml {
        let (mut xml, mut values) = (ZoneXml::default(), Values(&self.values));
        for record in self.records() {
            take(&mut xml, record, &mut values);
        }
        xml
    }

    /// The value of the last attr of this name.
    pub fn attr(&self, name: &str) -> Option<String> {
        // Nearly always the name is nowhere at all.
        if !self.shape.contains(&*coded(name)) {
            return None;
        }
        self.unpack().attr(name).map(str::to_owned)
    }

    /// What each device is matched by, in the order of the file.
    pub fn devices(&self) -> Vec<String> {
        let (mut found, mut values) = (Vec::new(), Values(&self.values));
        if !self.shape.contains("\u{1}V") {
            return found;
        }
        for (kind, _, names) in self.records() {
            match kind {
                "V" => names.for_each(|name| match decoded(name) {
                    "match" => found.extend(values.text()),
                    _ => values.skip(),
                }),
                "Z" | "F" | "N" => names.for_each(|_| values.skip()),
                "R" => names.skip(1).for_each(|_| values.skip()),
                _ => values.skip(),
            }
        }
        found
    }

    /// How many bytes it takes beside what it shares.
    pub fn bytes(&self) -> usize {
        self.values.len()
    }
}

/// Puts one record where it belongs: into the list, or into the item that came last.
fn take(xml: &mut ZoneXml, (kind, line, mut names): Record<'_>, values: &mut Values<'_>) {
    let what = match kind {
        "Z" => {
            xml.attributes = attributes(names, values);
            return;
        }
        "O" => {
            let option = values.text();
            if let Some(What::Filesystem { options, .. }) = xml.last() {
                options.push(option);
            }
            return;
        }
        "P" => {
            let pair = pair(names, line, values);
            if let Some(What::Network { net_attrs, .. } | What::Device { net_attrs, .. }) =
                xml.last()
            {
                net_attrs.push(pair);
            }
            return;
        }
        "A" => What::Attr(pair(names, line, values)),
        "R" => What::Rctl { name: name(names.next()), attributes: attributes(names, values) },
        "D" => What::Dataset(values.text()),
        "F" => What::Filesystem { attributes: attributes(names, values), options: Vec::new() },
        "N" => What::Network { attributes: attributes(names, values), net_attrs: Vec::new() },
        _ => What::Device { attributes: attributes(names, values), net_attrs: Vec::new() },
    };
    xml.items.push(Item { line, what });
}

fn name(field: Option<&str>) -> Option<String> {
    field.filter(|text| *text != NONE).map(|text| decoded(text).to_owned())
}

fn pair(mut names: Split<'_, char>, line: u32, values: &mut Values<'_>) -> Pair {
    Pair { name: name(names.next()), value: values.text(), line }
}

fn attributes(names: Split<'_, char>, values: &mut Values<'_>) -> Attributes {
    names.map(|name| (decoded(name).to_owned(), values.text().unwrap_or_default())).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::parse;
    use super::*;

    fn again(text: &str) {
        let xml = parse(text.as_bytes()).unwrap();
        assert_eq!(PackedXml::from(&xml).unpack(), xml, "{text}");
    }

    #[test]
    fn what_was_packed_comes_out() {
        again("<zone brand='x'/>");
        again(
            "<zone brand='x' name=''>\n<attr/><attr name='a'/>\n<attr value=''/><attr name='&#9;&#10;' value='\u{1f980}'/>\
             <rctl><rctl-value priv='p' limit=''/></rctl><rctl name='r'><rctl-value/></rctl>\n<dataset/><dataset name='d'/>\
             <filesystem special='s'><fsoption/><fsoption name='o'/></filesystem>\n<filesystem/>\
             <network><net-attr/>\n<net-attr name='n' value='v'/></network><network mac-addr='m'/>\
             <device match='m'><net-attr name='n'/></device><device/></zone>",
        );
    }

    #[test]
    fn attrs_are_found_without_unpacking() {
        let text = "<zone brand='x' failed='no'><attr name='failed' value='a'/><attr name='b' value='failed'/>\
                    <attr name='failed' value='c'/><attr name='d'/><network><net-attr name='e' value='f'/></network></zone>";
        let packed = PackedXml::from(&parse(text.as_bytes()).unwrap());
        for (name, value) in
            [("failed", Some("c")), ("b", Some("failed")), ("d", None), ("e", None), ("g", None)]
        {
            assert_eq!(packed.attr(name).as_deref(), value, "{name}");
            assert_eq!(packed.unpack().attr(name), value, "{name}");
        }
        let text = "<zone brand='x'><device a='match' match='/a'/><device/><device match='/b'><net-attr name='match' value='c'/></device></zone>";
        let packed = PackedXml::from(&parse(text.as_bytes()).unwrap());
        assert_eq!(packed.devices(), ["/a", "/b"]);
    }

    #[test]
    fn configurations_of_a_kind_share_their_shape() {
        let text = |value: &str| {
            format!(
                "<zone brand='{value}'>\n<attr name='alias' value='{value}'/><device match='{value}'/></zone>"
            )
        };
        let [one, other] =
            ["a", "b"].map(|value| PackedXml::from(&parse(text(value).as_bytes()).unwrap()));
        assert!(Arc::ptr_eq(&one.shape, &other.shape));
        assert_ne!(one, other);
        assert_eq!(one.devices(), ["a"]);
    }

    proptest! {
        #[test]
        fn any_document_comes_out(parts in proptest::collection::vec(0..9usize, 0..12), texts in proptest::collection::vec("[a-c\\t\\n \u{e9}\u{fffd}]{0,4}", 12)) {
            let mut text = "<zone brand='x'>".to_owned();
            for (part, value) in parts.iter().zip(&texts) {
                text += &match part {
                    0 => format!("<attr name='{value}' value='{value}'/>\n"),
                    1 => "<attr/>".to_owned(),
                    2 => format!("<rctl name='{value}'><rctl-value limit='{value}'/></rctl>"),
                    3 => format!("<dataset name='{value}'/>"),
                    4 => format!("<filesystem special='{value}'><fsoption name='{value}'/><fsoption/></filesystem>\n"),
                    5 => format!("<network a='{value}'><net-attr name='{value}'/></network>"),
                    6 => format!("<device match='{value}'><net-attr value='{value}'/></device>"),
                    7 => "<network/>".to_owned(),
                    _ => "<unknown><attr/></unknown>".to_owned(),
                };
            }
            again(&(text + "</zone>"));
        }
    }
}
