// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What each key may do: the `accounts` of the nats-servers' configuration. Pure.
//!
//! The streams live in the account FEED. The nodes live in another one, NODES, whose requests reach FEED through
//! imports: an answer then goes back to the client that asked, in its own account. In one account a node could ask for
//! an answer under another node's subject, and the server itself would publish it there.

use std::fmt::Write as _;

use sdc_clients::fleet::{CHANGES, KV_NODES, VMS};

/// Under which the nodes ask JetStream.
pub const NODES_API: &str = "$JS.FEED.API";

/// A public key of a user: it begins with U.
pub type Key = String;

/// Who may do what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys {
    /// The operator's keys: they make and delete streams.
    pub operators: Vec<Key>,
    /// Keys that read everything and write nothing.
    pub readers: Vec<Key>,
    /// Each node's key.
    pub nodes: Vec<(String, Key)>,
}

/// Returns the beginning of a node's inbox.
pub fn inbox(cn: &str) -> String {
    format!("_INBOX_{cn}")
}

/// What a node may publish.
pub fn of_node(cn: &str) -> Vec<String> {
    let get = |stream: &str| format!("{NODES_API}.DIRECT.GET.{stream}");
    vec![
        format!("vms.{cn}.*"),
        format!("$KV.NODES.{cn}"),
        format!("{}.vms.{cn}.>", get(CHANGES)),
        format!("{}.vms.{cn}.>", get(VMS)),
        format!("{}.$KV.NODES.{cn}", get(KV_NODES)),
        // The names of subjects are no secret; what is published under them is not told so.
        format!("{NODES_API}.STREAM.INFO.{CHANGES}"),
        format!("{NODES_API}.STREAM.INFO.{VMS}"),
    ]
}

/// What a reader may publish: questions.
fn of_reader() -> Vec<String> {
    let mut all = Vec::new();
    for stream in [CHANGES, VMS, KV_NODES] {
        for verb in [
            "STREAM.INFO",
            "STREAM.MSG.GET",
            "CONSUMER.CREATE",
            "CONSUMER.INFO",
            "CONSUMER.DELETE",
            "CONSUMER.MSG.NEXT",
        ] {
            all.push(format!("$JS.API.{verb}.{stream}"));
            if verb.starts_with("CONSUMER") {
                all.push(format!("$JS.API.{verb}.{stream}.>"));
            }
        }
    }
    all
}

fn quoted(all: &[String]) -> String {
    all.iter().map(|subject| format!("\"{subject}\"")).collect::<Vec<_>>().join(", ")
}

/// Returns the text for the servers' configuration.
pub fn accounts(keys: &Keys) -> String {
    let mut text = String::from("accounts {\n  FEED {\n    jetstream: enabled\n    users: [\n");
    // Writing into a text does not fail.
    for key in &keys.operators {
        let _ = writeln!(text, "      {{ nkey: {key} }}");
    }
    for key in &keys.readers {
        let publish = quoted(&of_reader());
        let _ = writeln!(
            text,
            "      {{ nkey: {key}, permissions: {{ publish: [{publish}], subscribe: [\"_INBOX.>\"] }} }}"
        );
    }
    let services = [
        ("vms.*.*", "vms.*.*"),
        ("$KV.NODES.*", "$KV.NODES.*"),
        ("$JS.API.DIRECT.GET.>", "$JS.FEED.API.DIRECT.GET.>"),
        ("$JS.API.STREAM.INFO.*", "$JS.FEED.API.STREAM.INFO.*"),
    ];
    let exports =
        services.map(|(subject, _)| format!("      {{ service: \"{subject}\" }}\n")).concat();
    let imports = services.map(|(subject, to)| {
        let to = if to == subject { String::new() } else { format!(", to: \"{to}\"") };
        format!("      {{ service: {{ account: FEED, subject: \"{subject}\" }}{to} }}\n")
    });
    let _ = write!(
        text,
        "    ]\n    exports: [\n{exports}    ]\n  }}\n  NODES {{\n    imports: [\n{}    ]\n    users: [\n",
        imports.concat()
    );
    for (cn, key) in &keys.nodes {
        let (publish, inbox) = (quoted(&of_node(cn)), inbox(cn));
        let _ = writeln!(
            text,
            "      {{ nkey: {key}, permissions: {{ publish: [{publish}], subscribe: [\"{inbox}.>\"] }} }}"
        );
    }
    text + "    ]\n  }\n}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_may_name_no_other_node() {
        let cn = "564d0b8e-6099-7648-351e-877faf6c56f6";
        for subject in of_node(cn) {
            let is_info = subject.contains("STREAM.INFO");
            assert!(is_info || subject.contains(cn), "{subject}");
            assert!(
                !subject.starts_with("$JS.API"),
                "{subject}: it would be answered in its own account"
            );
        }
        let keys = Keys { nodes: vec![(cn.into(), "UNODE".into())], ..Keys::default() };
        let text = accounts(&keys);
        assert!(text.contains(&format!("subscribe: [\"{}.>\"]", inbox(cn))), "{text}");
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
