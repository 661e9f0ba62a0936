// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The log of the real daemon: one change can be followed from its cause to its commit, every line
//! is bunyan's, and nothing that a customer keeps secret is in it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use simnode::edits::ConfigMap;

use super::common::{Lab, status, text, until};

const SECRET: &str = "hunter2-correct-horse";

impl Lab {
    /// The log so far; the last line may still be on its way.
    fn lines(&self) -> Vec<Value> {
        let text = self.log();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    /// Waits until these stand in the log in this order, after `from` lines of it.
    async fn tells(&self, from: usize, steps: &[&dyn Fn(&Value) -> bool]) {
        let told = || {
            let lines = self.lines();
            let mut rest = lines.into_iter().skip(from);
            steps.iter().filter(|step| rest.by_ref().any(|line| step(&line))).count()
        };
        until("the log tells it", async || told() == steps.len()).await;
    }
}

fn says(line: &Value, msg: &str, key: &str, part: &str) -> bool {
    line["msg"] == msg && line[key].as_str().is_some_and(|text| text.contains(part))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_change_can_be_followed_from_its_cause_to_its_commit() {
    let lab = Lab::of(4).await;
    let vm = text(&lab.vms().await[0], "uuid").to_owned();
    let from = lab.lines().len();
    lab.verbs().set_quota(&vm, 7).await.unwrap();
    let dataset = format!("zones/{vm}");
    lab.tells(
        from,
        &[
            &|line| says(line, "cause: zfs event", "dataset", &dataset),
            &|line| {
                says(line, "command ended", "command", &format!("-d 1 {dataset}"))
                    && line["status"] == 0
            },
            &|line| says(line, "differs", "changes", "quota changed") && line["vm"] == *vm,
            &|line| {
                says(line, "committed", "outcome", "modified")
                    && line["vm"] == *vm
                    && line["seq"].is_u64()
            },
        ],
    )
    .await;

    let from = lab.lines().len();
    let set = Map::from_iter([("motd".to_owned(), json!("hello"))]);
    lab.verbs().set_map(&vm, ConfigMap::CustomerMetadata, set, Vec::new()).await.unwrap();
    lab.tells(
        from,
        &[
            &|line| line["msg"] == "cause: file changed" && line["file"] == "config",
            &|line| says(line, "reading begins", "parts", "config") && line["vm"] == *vm,
            &|line| says(line, "differs", "changes", "customer_metadata.motd added"),
            &|line| line["msg"] == "committed" && line["vm"] == *vm,
        ],
    )
    .await;
    for line in lab.lines() {
        assert!(line["v"] == 0 && line["name"] == "vminfod" && line["hostname"].is_string());
        assert!(line["level"].is_u64() && line["pid"].is_u64() && line["msg"].is_string());
        assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
    }
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_secret_is_in_the_log_or_in_the_status() {
    let lab = Lab::of(4).await;
    let vm = text(&lab.vms().await[0], "uuid").to_owned();
    let from = lab.lines().len();
    for map in [ConfigMap::CustomerMetadata, ConfigMap::InternalMetadata, ConfigMap::Tags] {
        let set = Map::from_iter([("password".to_owned(), json!(SECRET))]);
        lab.verbs().set_map(&vm, map, set, Vec::new()).await.unwrap();
    }
    let changed = |part: &'static str| move |line: &Value| says(line, "differs", "changes", part);
    lab.tells(from, &[&changed("customer_metadata.password added")]).await;
    lab.tells(from, &[&changed("internal_metadata.password added")]).await;
    lab.tells(from, &[&changed("tags.password added")]).await;

    // Files that cannot be read, broken in the middle of what is secret.
    let encoded = STANDARD.encode(SECRET);
    let xml = lab.node().zone_xml(&vm);
    let whole = std::fs::read_to_string(&xml).unwrap();
    let metadata = lab.node().path(&format!("/zones/{vm}/config/metadata.json"));
    let good = std::fs::read_to_string(&metadata).unwrap();
    let failed = |source: &'static str| {
        move |line: &Value| line["source"] == source && line["level"].as_u64() >= Some(40)
    };
    // What is no JSON counts as empty, as deployed; what nobody can have meant is refused.
    for (broken, is_refused) in [
        (format!(r#"{{"customer_metadata":{{"password":"{SECRET}"#), false),
        (format!(r#"{{"customer_metadata":{{"password": {SECRET}}}}}"#), false),
        (format!(r#"{{"customer_metadata":{{}},"hasOwnProperty":"{SECRET}"}}"#), true),
    ] {
        let from = lab.lines().len();
        std::fs::write(&metadata, &broken).unwrap();
        let seen = match is_refused {
            false => &changed("customer_metadata.password removed") as &dyn Fn(&Value) -> bool,
            true => &failed("config"),
        };
        lab.tells(from, &[seen]).await;
        let from = lab.lines().len();
        std::fs::write(&metadata, &good).unwrap();
        let well = |line: &Value| {
            says(line, "differs", "changes", "customer_metadata.password added")
                || line["msg"] == "reading succeeded again"
        };
        lab.tells(from, &[&well]).await;
    }
    for (at, broken) in [
        format!(r#"<attr name="vnc-password" type="string" value="{encoded}"#),
        format!(r#"<attr name="vnc-password" type="string" value={encoded}/>"#),
        format!(r#"<attr name="vnc-password" type="string" value="x" {SECRET}@/>"#),
        format!(r#"<attr name="vnc-password" type="string" {SECRET}/>"#),
        format!(r#"<attr name="vnc-password" value="a" "{SECRET}" />"#),
        format!("</zone>{SECRET}"),
    ]
    .iter()
    .enumerate()
    {
        let from = lab.lines().len();
        std::fs::write(&xml, whole.replacen("</zone>", &format!("{broken}</zone>"), 1)).unwrap();
        lab.tells(from, &[&failed("zone_xml")]).await;
        let status = status(&lab.vminfod_url()).await.to_string();
        assert!(status.contains("zone_xml"), "{at}: {status}");
        assert!(!status.contains(SECRET) && !status.contains(&encoded), "{at}: {status}");
        std::fs::write(&xml, &whole).unwrap();
        lab.tells(from, &[&|line| line["msg"] == "reading succeeded again"]).await;
    }
    let text = lab.log();
    let leak = text.lines().find(|line| line.contains(SECRET) || line.contains(&encoded));
    assert_eq!(leak, None);
    lab.stop().await;
}
