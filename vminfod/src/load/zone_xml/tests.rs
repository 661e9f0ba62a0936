// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.
//! Documents by hand, hostile ones, and a second parser as judge.

use proptest::prelude::*;

use super::*;

const ZONE: &str = r#"<zone name="z" brand="lx">"#;

fn items(inner: &str) -> Vec<What> {
    let zone = parse(format!("{ZONE}{inner}</zone>").as_bytes()).unwrap();
    zone.items.into_iter().map(|item| item.what).collect()
}

fn refused(text: &str) -> String {
    parse(text.as_bytes()).expect_err(text).to_string()
}

#[test]
fn elements_count_only_at_their_place() {
    let found = items(
        "<a><attr name='x' value='1'/></a><attr name='y' value='2'><attr name='n'/></attr><zone><attr name='i'/></zone>\
         <rctl-value limit='1'/><net-attr name='q'/><x:attr xmlns:x='u' name='p'/><fsoption name='ro'/>",
    );
    let [What::Attr(pair)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((pair.name.as_deref(), pair.value.as_deref()), (Some("y"), Some("2")));
}

#[test]
fn children_belong_to_the_element_they_stand_in() {
    let found = items(
        "<rctl name='r'><rctl-value limit='1'/></rctl><rctl><rctl-value limit='2'/></rctl>\
         <filesystem special='/a'><fsoption name='ro'/><fsoption/></filesystem>\
         <network physical='net0'><net-attr name='ip' value='x'/></network>\
         <device match='/d'><net-attr name='boot'/></device><dataset name='d'/>",
    );
    let [
        What::Rctl { name: Some(first), .. },
        What::Rctl { name: None, .. },
        filesystem,
        network,
        device,
        dataset,
    ] = &found[..]
    else {
        panic!("{found:?}")
    };
    assert_eq!(first, "r");
    assert!(
        matches!(filesystem, What::Filesystem { options, .. } if *options == [Some("ro".into()), None])
    );
    assert!(matches!(network, What::Network { net_attrs, .. } if net_attrs.len() == 1));
    assert!(
        matches!(device, What::Device { attributes, net_attrs } if attributes.len() == 1 && net_attrs.len() == 1)
    );
    assert_eq!(*dataset, What::Dataset(Some("d".into())));
}

#[test]
fn the_last_attr_of_a_name_counts() {
    let zone = parse(
        format!(
            "{ZONE}<attr name='a' value='1'/><attr name='a' value='2'/><attr name='b'/></zone>"
        )
        .as_bytes(),
    );
    let zone = zone.unwrap();
    assert_eq!(
        (zone.attr("a"), zone.attr("b"), zone.attr("c"), zone.brand()),
        (Some("2"), None, None, "lx")
    );
}

#[test]
fn surroundings_are_accepted() {
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
    let Some(What::Attr(pair)) = parse(&latin).unwrap().items.pop().map(|i| i.what) else {
        panic!()
    };
    assert_eq!(pair.name.as_deref(), Some("\u{e9}\u{fffd}"));
}

#[test]
fn what_is_not_well_formed_is_refused() {
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
fn hostile_documents_cost_nothing() {
    let bomb = "<!DOCTYPE zone [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;'>]><zone brand='lx'>&b;</zone>";
    assert!(refused(bomb).contains("declarations of its own"));
    let deep = format!("{ZONE}{}", "<a>".repeat(100_000));
    assert!(refused(&deep).contains("nested deeper"));
    let wide: String = (0..10_000).map(|i| format!(" a{i}=''")).collect();
    assert!(refused(&format!("<zone{wide}/>")).contains("attributes"));
    let large = vec![b' '; MAX_BYTES as usize + 1];
    assert!(parse(&large).is_err_and(|e| e.to_string().contains("larger than")));
    // Many small elements: the lines are counted on, not from the beginning each time.
    let many = format!("{ZONE}{}</zone>", "<attr/>\n".repeat(200_000));
    assert_eq!(parse(many.as_bytes()).unwrap().items.last().map(|i| i.line), Some(200_000));
}

/// The same list of what a document says, by another parser.
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
                found.extend(values.map(|n| ("rctl".to_owned(), attributes(n))));
            }
            _ => {}
        }
    }
    Some(found)
}

fn ours(zone: &ZoneXml) -> Vec<(String, Attributes)> {
    let pick = |item: &Item| match &item.what {
        What::Filesystem { attributes, .. } => Some(("filesystem".to_owned(), attributes.clone())),
        What::Network { attributes, .. } => Some(("network".to_owned(), attributes.clone())),
        What::Device { attributes, .. } => Some(("device".to_owned(), attributes.clone())),
        What::Rctl { attributes, .. } => Some(("rctl".to_owned(), attributes.clone())),
        What::Attr(_) | What::Dataset(_) => None,
    };
    zone.items.iter().filter_map(pick).collect()
}

/// The configurations of the recorded nodes: our own, and those beside the repository if there.
fn recorded() -> Vec<PathAndText> {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = here.join("../../shared/fixtures");
    if !shared.is_dir() {
        println!("only the node kept here: {} is not there", shared.display());
    }
    let list = |dir: &std::path::Path| -> Vec<std::path::PathBuf> {
        std::fs::read_dir(dir)
            .map(|d| d.filter_map(|e| Some(e.ok()?.path())).collect())
            .unwrap_or_default()
    };
    let nodes = [here.join("tests/fixtures"), shared];
    let files =
        nodes.iter().flat_map(|n| list(n)).flat_map(|node| list(&node.join("root/etc/zones")));
    let xml = files.filter(|f| f.extension().is_some_and(|e| e == "xml"));
    xml.filter_map(|f| Some((f.clone(), std::fs::read_to_string(f).ok()?))).collect()
}

type PathAndText = (std::path::PathBuf, String);

#[test]
fn a_second_parser_agrees_on_recorded_files() {
    let files = recorded();
    assert!(!files.is_empty());
    for (path, text) in files {
        let (ours, oracle) = (parse(text.as_bytes()).map(|zone| ours(&zone)), oracle(&text));
        match (ours, oracle) {
            (Ok(ours), Some(oracle)) => assert_eq!(ours, oracle, "{}", path.display()),
            (Ok(_), None) => panic!("{}: only we take it", path.display()),
            // What we refuse beyond the rules of XML is in the messages of `what_is_not_well_formed`.
            (Err(_), _) => {}
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
    fn nothing_is_taken_that_a_second_parser_refuses(at in any::<prop::sample::Index>(), insert in "[<>/!?a=\"'&;\\]\\- ]{0,3}") {
        let text = format!("<?xml version=\"1.0\"?>\n<!-- c -->\n{ZONE}\n <rctl name=\"a\"><rctl-value x=\"1\" y='&lt;'/></rctl>\n <network p=\"q\">t</network>\n</zone>\n");
        let mut text = text;
        let at = at.index(text.len());
        text.insert_str(at, &insert);
        if let Ok(zone) = parse(text.as_bytes()) {
            prop_assert_eq!(Some(ours(&zone)), oracle(&text), "{}", text);
        }
    }
}
