// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A configuration as it is kept from one reading to the next: one text instead of a hundred, a
//! fifth of the memory. It is unpacked for each composition, which is rare beside that.
//!
//! ```text
//!  configuration = record*          record = 01 KIND LINE field*
//!  field         = 02 TEXT          TEXT   = 03 (not there), 04 CODE (one of the words below),
//!                                             or the text itself
//! ```
//!
//! Characters below a blank other than line ends and tabs are in no XML document, so none of the
//! texts can contain one that separates.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;
use std::str::Split;
use std::sync::LazyLock;

use super::model::{Attributes, Item, Pair, What, ZoneXml};

const RECORD: char = '\u{1}';
const FIELD: char = '\u{2}';
const NONE: &str = "\u{3}";
const WORD: char = '\u{4}';

/// Texts that nearly every configuration has, each kept as one character, `!` and those after it.
/// Only this process ever reads a code.
const WORDS: &[&str] = &[
    "name",
    "value",
    "brand",
    "zonepath",
    "autoboot",
    "ip-type",
    "exclusive",
    "limitpriv",
    "vm-version",
    "create-timestamp",
    "owner-uuid",
    "billing-id",
    "alias",
    "dataset-uuid",
    "package-name",
    "package-version",
    "resolvers",
    "hostname",
    "dns-domain",
    "tmpfs",
    "true",
    "false",
    "1",
    "priv",
    "privileged",
    "limit",
    "action",
    "deny",
    "none",
    "zone.cpu-shares",
    "zone.zfs-io-priority",
    "zone.cpu-cap",
    "zone.max-lwps",
    "zone.max-msg-ids",
    "zone.max-sem-ids",
    "zone.max-shm-ids",
    "zone.max-physical-memory",
    "zone.max-locked-memory",
    "zone.max-swap",
    "zone.max-shm-memory",
    "physical",
    "mac-addr",
    "vlan-id",
    "global-nic",
    "ip",
    "ips",
    "netmask",
    "network_uuid",
    "nic_tag",
    "gateway",
    "gateways",
    "primary",
    "mtu",
    "admin",
    "external",
    "model",
    "virtio",
    "match",
    "boot",
    "image-uuid",
    "image-size",
    "size",
    "media",
    "disk",
    "firewall-enabled",
    "maintain-resolvers",
    "uuid",
    "pci-slot",
    "vcpus",
    "ram",
    "kernel-version",
    "bootrom",
    "vnc-port",
    "vm-autoboot",
    "cpu-type",
    "restart-init",
    "docker",
    "internal-metadata-namespaces",
    "init-name",
    "net0",
    "net1",
    "joyent",
    "joyent-minimal",
    "lx",
    "kvm",
    "bhyve",
];

static CODES: LazyLock<HashMap<&str, char>> = LazyLock::new(|| {
    let codes = WORDS.iter().zip('!'..);
    codes.map(|(word, code)| (*word, code)).collect()
});

/// The code of a text, if it has one.
fn code(text: &str) -> Option<char> {
    CODES.get(text).copied()
}

/// A text as it stands in a field.
fn coded(text: &str) -> Cow<'_, str> {
    code(text).map_or(Cow::Borrowed(text), |code| String::from_iter([WORD, code]).into())
}

/// Back from [`coded`].
fn decoded(field: &str) -> &str {
    let word = field.strip_prefix(WORD).and_then(|code| code.chars().next());
    let at = word.and_then(|code| (code as usize).checked_sub('!' as usize));
    at.and_then(|at| WORDS.get(at)).copied().unwrap_or(field)
}

/// A configuration in little memory; equal when it says the same in the same lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedXml(Box<str>);

impl From<&ZoneXml> for PackedXml {
    fn from(xml: &ZoneXml) -> Self {
        let mut out = Packer(String::with_capacity(4096));
        out.record('Z', 0);
        out.attributes(&xml.attributes);
        for item in &xml.items {
            out.item(item);
        }
        // A copy of just its size: a buffer that is cut leaves its rest behind, beside what stays.
        PackedXml(out.0.as_str().into())
    }
}

struct Packer(String);

impl Packer {
    fn record(&mut self, kind: char, line: u32) {
        self.0.extend([RECORD, kind]);
        // Writing to memory cannot fail.
        let _infallible = write!(self.0, "{line}");
    }

    fn field(&mut self, text: Option<&str>) {
        self.0.push(FIELD);
        match text.map(|text| (code(text), text)) {
            None => self.0.push_str(NONE),
            Some((Some(code), _)) => self.0.extend([WORD, code]),
            Some((None, text)) => self.0.push_str(text),
        }
    }

    fn attributes(&mut self, attributes: &Attributes) {
        for (name, value) in attributes {
            self.field(Some(name));
            self.field(Some(value));
        }
    }

    fn pair(&mut self, kind: char, pair: &Pair) {
        self.record(kind, pair.line);
        self.field(pair.name.as_deref());
        self.field(pair.value.as_deref());
    }

    fn item(&mut self, item: &Item) {
        match &item.what {
            What::Attr(pair) => {
                self.record('A', item.line);
                self.field(pair.name.as_deref());
                self.field(pair.value.as_deref());
            }
            What::Rctl { name, attributes } => {
                self.record('R', item.line);
                self.field(name.as_deref());
                self.attributes(attributes);
            }
            What::Dataset(name) => {
                self.record('D', item.line);
                self.field(name.as_deref());
            }
            What::Filesystem { attributes, options } => {
                self.record('F', item.line);
                self.attributes(attributes);
                for option in options {
                    self.record('O', 0);
                    self.field(option.as_deref());
                }
            }
            What::Network { attributes, net_attrs } => {
                self.record('N', item.line);
                self.attributes(attributes);
                net_attrs.iter().for_each(|pair| self.pair('P', pair));
            }
            What::Device { attributes, net_attrs } => {
                self.record('V', item.line);
                self.attributes(attributes);
                net_attrs.iter().for_each(|pair| self.pair('P', pair));
            }
        }
    }
}

impl PackedXml {
    /// The configuration itself.
    pub fn unpack(&self) -> ZoneXml {
        let mut xml = ZoneXml::default();
        for record in self.0.split(RECORD).skip(1) {
            let mut fields = record.split(FIELD);
            let head = fields.next().unwrap_or_default();
            let (kind, line) = head.split_at(head.len().min(1));
            take(&mut xml, kind, line.parse().unwrap_or(0), fields);
        }
        xml
    }

    /// The value of the last attr of this name.
    pub fn attr(&self, name: &str) -> Option<&str> {
        let name = coded(name);
        // Nearly always the name is nowhere at all.
        if !self.0.contains(&*name) {
            return None;
        }
        let value = self.0.rsplit(RECORD).find_map(|record| {
            let mut fields = record.strip_prefix('A')?.split(FIELD).skip(1);
            (fields.next() == Some(&*name)).then(|| fields.next().filter(|value| *value != NONE))
        });
        value.flatten().map(decoded)
    }

    /// What each device is matched by, in the order of the file.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        self.0.split(RECORD).filter_map(|record| {
            let mut fields = record.strip_prefix('V')?.split(FIELD).skip(1);
            while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
                if decoded(name) == "match" {
                    return Some(decoded(value));
                }
            }
            None
        })
    }

    /// How many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }
}

/// Puts one record where it belongs: into the list, or into the item that came last.
fn take(xml: &mut ZoneXml, kind: &str, line: u32, mut fields: Split<'_, char>) {
    let what = match kind {
        "Z" => {
            xml.attributes = attributes(fields);
            return;
        }
        "O" => {
            if let Some(What::Filesystem { options, .. }) = xml.last() {
                options.push(text(fields.next()));
            }
            return;
        }
        "P" => {
            if let Some(What::Network { net_attrs, .. } | What::Device { net_attrs, .. }) =
                xml.last()
            {
                net_attrs.push(pair(fields, line));
            }
            return;
        }
        "A" => What::Attr(pair(fields, line)),
        "R" => What::Rctl { name: text(fields.next()), attributes: attributes(fields) },
        "D" => What::Dataset(text(fields.next())),
        "F" => What::Filesystem { attributes: attributes(fields), options: Vec::new() },
        "N" => What::Network { attributes: attributes(fields), net_attrs: Vec::new() },
        _ => What::Device { attributes: attributes(fields), net_attrs: Vec::new() },
    };
    xml.items.push(Item { line, what });
}

fn text(field: Option<&str>) -> Option<String> {
    field.filter(|text| *text != NONE).map(|text| decoded(text).to_owned())
}

fn pair(mut fields: Split<'_, char>, line: u32) -> Pair {
    Pair { name: text(fields.next()), value: text(fields.next()), line }
}

fn attributes(mut fields: Split<'_, char>) -> Attributes {
    let mut found = Attributes::new();
    while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
        found.push((decoded(name).to_owned(), decoded(value).to_owned()));
    }
    found
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
            assert_eq!(packed.attr(name), value, "{name}");
            assert_eq!(packed.unpack().attr(name), value, "{name}");
        }
        let text = "<zone brand='x'><device a='match' match='/a'/><device/><device match='/b'><net-attr name='match' value='c'/></device></zone>";
        let packed = PackedXml::from(&parse(text.as_bytes()).unwrap());
        assert_eq!(packed.devices().collect::<Vec<_>>(), ["/a", "/b"]);
    }

    #[test]
    fn every_word_has_a_code_and_comes_back() {
        assert_eq!(CODES.len(), WORDS.len());
        for word in WORDS {
            let word = *word;
            assert_eq!(coded(word).chars().count(), 2, "{word}");
            assert_eq!(decoded(&coded(word)), word);
            again(&format!(
                "<zone brand='{word}' other='{word}'><attr name='{word}' value='{word}'/><device match='{word}'/></zone>"
            ));
            let text = format!("<zone brand='x'><attr name='{word}' value='{word}'/></zone>");
            assert_eq!(PackedXml::from(&parse(text.as_bytes()).unwrap()).attr(word), Some(word));
        }
        assert_eq!((coded("other"), decoded("other")), ("other".into(), "other"));
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
