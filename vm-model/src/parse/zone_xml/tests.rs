// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.
//! Documents by hand, hostile ones, and the comparison with a second parser.

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;

const ZONE: &str = r#"<zone name="z" brand="lx">"#;

fn zone(inner: &str) -> ZoneXml {
    parse(format!("{ZONE}{inner}</zone>").as_bytes()).unwrap()
}

fn refused(text: &str) -> String {
    parse(text.as_bytes()).expect_err(text).to_string()
}

#[test]
fn elements_count_only_at_their_path() {
    let found = zone(
        "<a><attr name='x' value='1'/></a><attr name='y' value='2'><attr name='n'/></attr><zone><attr name='i'/></zone>\
         <rctl-value limit='1'/><net-attr name='q'/><x:attr xmlns:x='u' name='p'/><fsoption name='ro'/>",
    );
    let elements: Vec<Element<'_>> = found.elements().collect();
    let [attr] = elements[..] else { panic!("{found:?}") };
    assert!(attr.attributes().eq([("name", "y"), ("value", "2")]) && attr.inside().count() == 0);
}

#[test]
fn children_belong_to_their_parent() {
    let found = zone(
        "<rctl name='r'><rctl-value limit='1'/></rctl><rctl><rctl-value limit='2'/><rctl-value/></rctl>\
         <filesystem special='/a'><fsoption name='ro'/><fsoption/></filesystem>\n\
         <network physical='net0'><net-attr name='ip' value='x' y='z'/></network>\
         <device match=''><net-attr name='boot'/></device><dataset name='d' alias='x'/>",
    );
    let shown = |element: Element<'_>| {
        let list: Vec<String> = element.attributes().map(|(n, v)| format!("{n}={v}")).collect();
        format!("{} {} {}", element.name(), element.line(), list.join(" "))
    };
    let all = found.elements().map(|element| {
        let inside: Vec<String> = element.inside().map(shown).collect();
        format!("{}; {}", shown(element), inside.join(", "))
    });
    let expected = [
        "rctl 1 name=r; rctl-value 1 limit=1",
        "rctl 1 ; rctl-value 1 limit=2, rctl-value 1 ",
        "filesystem 1 special=/a; fsoption 1 name=ro, fsoption 1 ",
        "network 2 physical=net0; net-attr 2 name=ip value=x",
        "device 2 match=; net-attr 2 name=boot",
        "dataset 2 name=d; ",
    ];
    assert_eq!(all.collect::<Vec<_>>(), expected);
    assert!(found.each("dataset", "name").eq(["d"]) && found.each("device", "x").count() == 0);
}

#[test]
fn the_last_attr_of_a_name_counts() {
    let zone = zone("<attr name='a' value='1'/><attr name='a' value='2'/><attr name='b'/>");
    assert_eq!(zone.attrs(["a", "b", "c"]), [Some("2"), None, None]);
    assert_eq!(zone.brand(), "lx");
}

#[test]
fn accepts_what_surrounds_the_zone_element() {
    for text in [
        format!("{ZONE}</zone>\n<!-- end -->\n<?pi x?>\n"),
        format!(
            "<?xml version=\"1.0\"?>\r\n<!DOCTYPE zone PUBLIC \"p\" \"file:///d\">\r\n{ZONE}\r\n</zone>"
        ),
        format!("\u{feff}{ZONE}text &amp; <![CDATA[<x>]]></zone>"),
    ] {
        parse(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"));
    }
    let mut latin =
        format!("<?xml version='1.0' encoding='ISO-8859-1'?>{ZONE}<attr name='\u{e9}").into_bytes();
    latin.extend(b"\xff'/></zone>");
    assert!(parse(&latin).unwrap().each("attr", "name").eq(["\u{e9}\u{fffd}"]));
}

#[test]
fn refuses_what_is_not_well_formed() {
    let table = [
        ("".to_owned(), "expected a zone element"),
        ("GARBAGE".to_owned(), "expected a zone element"),
        ("<thing brand='x'/>".to_owned(), "expected a zone element, found <thing>"),
        ("<zone name='z'/>".to_owned(), "expected an attribute \"brand\""),
        ("<zone network='x' brand='lx'/>".to_owned(), "network"),
        (ZONE.to_owned(), "expected </zone>, found the end"),
        (format!("{ZONE}\n\n<attr name=\"a"), "line 3"),
        (format!("{ZONE}</zone>x"), "expected the end after the zone element, found text"),
        (format!("{ZONE}</zone><zone/>"), "expected the end after the zone element, found <zone>"),
        (format!("{ZONE}</zone></zone>"), "line 1"),
        (format!("{ZONE}<a></b></zone>"), "line 1"),
        (
            format!("{ZONE}\n<a x='1' x='2'/></zone>"),
            "line 2: <a>: the attribute \"x\" is there twice",
        ),
        (format!("{ZONE}<a x='<'/></zone>"), "'<' inside a value"),
        (format!("{ZONE}<a x='&nope;'/></zone>"), "unknown reference &nope;"),
        (format!("{ZONE}&nope;</zone>"), "unknown reference &nope;"),
        (format!("{ZONE}& x</zone>"), "line 1"),
        (format!("{ZONE}\0</zone>"), "0x0 is not allowed"),
        (format!("{ZONE}<a x='\0'/></zone>"), "0x0 is not allowed"),
        (format!("{ZONE}<!-- a -- b --></zone>"), "line 1"),
        (format!("{ZONE}]]></zone>"), "]]> outside CDATA"),
        (format!("{ZONE}<?xml version='1.0'?></zone>"), "XML declaration"),
        (format!("\n<?xml version='1.0'?>{ZONE}</zone>"), "XML declaration"),
        (format!("{ZONE}<!DOCTYPE zone></zone>"), "document type"),
        (format!("{ZONE}<1a/></zone>"), "no name"),
        (format!("{ZONE}<x><device/></x></zone>"), "not directly under zone"),
        (format!("<![CDATA[x]]>{ZONE}</zone>"), "CDATA outside"),
    ];
    for (text, what) in table {
        let error = refused(&text);
        assert!(error.starts_with("zone_xml: ") && error.contains(what), "{text}: {error}");
    }
}

#[test]
fn hostile_documents_are_cheap() {
    let bomb = "<!DOCTYPE zone [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;'>]><zone brand='lx'>&b;</zone>";
    assert!(refused(bomb).contains("declarations of its own"));
    let deep = format!("{ZONE}{}", "<a>".repeat(100_000));
    assert!(refused(&deep).contains("nested deeper"));
    let wide: String = (0..10_000).map(|i| format!(" a{i}=''")).collect();
    assert!(refused(&format!("<zone{wide}/>")).contains("attributes"));
    let large = vec![b' '; MAX_BYTES as usize + 1];
    assert!(parse(&large).is_err_and(|e| e.to_string().contains("larger than")));
    // Lines are not counted from the beginning for each element.
    let many = format!("{ZONE}{}</zone>", "<attr/>\n".repeat(200_000));
    let many = parse(many.as_bytes()).unwrap();
    assert_eq!(many.elements().last().map(|it| it.line()), Some(200_000));
}

type Attributes = Vec<(String, String)>;

/// Returns the elements of a document as another parser reads them.
fn oracle(text: &str) -> Option<Vec<(String, Attributes)>> {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(text, options).ok()?;
    let mut found = Vec::new();
    let root = document.root_element();
    for node in root.children().filter(|n| n.is_element() && n.tag_name().namespace().is_none()) {
        let attributes = |n: roxmltree::Node<'_, '_>| -> Attributes {
            n.attributes().map(|a| (a.name().to_owned(), a.value().to_owned())).collect()
        };
        match node.tag_name().name() {
            name @ ("filesystem" | "network" | "device") => {
                found.push((name.to_owned(), attributes(node)))
            }
            "rctl" => {
                let values = node.children().filter(|n| n.has_tag_name("rctl-value"));
                found.extend(values.map(|n| ("rctl-value".to_owned(), attributes(n))));
            }
            _ => {}
        }
    }
    Some(found)
}

fn ours(zone: &ZoneXml) -> Vec<(String, Attributes)> {
    let with_rctl_values = zone.elements().flat_map(|element| match element.name() {
        "rctl" => element.inside().collect(),
        _ => vec![element],
    });
    let picked = with_rctl_values
        .filter(|it| matches!(it.name(), "filesystem" | "network" | "device" | "rctl-value"));
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    picked.map(|it| (it.name().to_owned(), it.attributes().map(owned).collect())).collect()
}

/// Returns the configurations of the recorded nodes in a folder.
#[expect(clippy::disallowed_methods, reason = "only the tests read recorded files")]
fn recorded(nodes: &str) -> Vec<(PathBuf, String)> {
    let list = |folder: PathBuf| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let nodes = list(Path::new(env!("CARGO_MANIFEST_DIR")).join(nodes)).into_iter();
    let files = nodes.flat_map(|node| list(node.join("root/etc/zones")));
    let xml = files.filter(|file| file.extension().is_some_and(|it| it == "xml"));
    xml.filter_map(|file| std::fs::read_to_string(&file).ok().map(|text| (file, text))).collect()
}

#[test]
fn a_second_parser_agrees_on_recorded_files() {
    let kept = recorded("../vminfod/tests/fixtures");
    assert!(kept.len() >= 6, "the node cn-basic is not there");
    let recordings = recordings::unpacked().unwrap();
    let more = recorded(recordings.path().to_str().unwrap());
    assert!(more.len() > 100, "{} recorded configurations", more.len());
    for (path, text) in kept.iter().chain(&more) {
        match (parse(text.as_bytes()), oracle(text)) {
            (Ok(zone), Some(oracle)) => assert_eq!(ours(&zone), oracle, "{}", path.display()),
            (Ok(_), None) => panic!("{}: only ours accepts it", path.display()),
            // Ours refuses more than the rules of XML: see `refuses_what_is_not_well_formed`.
            (Err(error), _) => assert!(!path.to_string_lossy().contains("cn-basic"), "{error}"),
        }
    }
}

proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn never_panics_on_near_xml(inner in "[<>/!?a-c=\"'&;#x\\[\\]\\- \n\u{e9}]{0,80}") {
        let _ = parse(format!("{ZONE}{inner}</zone>").as_bytes());
    }

    #[test]
    fn accepts_nothing_that_a_second_parser_refuses(
        at in any::<prop::sample::Index>(),
        insert in "[<>/!?a=\"'&;\\]\\- ]{0,3}",
    ) {
        let mut text = format!(
            "<?xml version=\"1.0\"?>\n<!-- c -->\n{ZONE}\n \
             <rctl name=\"a\"><rctl-value x=\"1\" y='&lt;'/></rctl>\n \
             <network p=\"q\">t</network>\n</zone>\n"
        );
        let at = at.index(text.len());
        text.insert_str(at, &insert);
        if let Ok(zone) = parse(text.as_bytes()) {
            prop_assert_eq!(Some(ours(&zone)), oracle(&text), "{}", text);
        }
    }
}
