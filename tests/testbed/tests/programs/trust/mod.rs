// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Who is let in: the real programs, over real sockets.

use std::path::{Path, PathBuf};

use sdc_clients::Http;
use sdc_clients::http::Call;
use serde_json::Value;
use testbed::lab::World;
use testbed::lab::asking::OWN_AGENT;
use testbed::process::{self, Finished};

use super::common::{LATE, Lab, until};

mod clocks; // clocks that are wrong
mod ends; // certificates that end
mod guide; // what the page has an operator type
mod moving; // two nodes, and a slow stream
mod operator; // an operator with a certificate of his own
mod ports; // the versions of TLS
mod revoked; // keys that are revoked, on each port
mod rotation; // another authority
mod stores; // a store that was lost or is older, and a key that was cloned

/// A node with its migration-agent, and migration-service.
async fn lab() -> Lab {
    let mut lab = Lab::start(|options| {
        options.vms = 1;
        options.migration_agent.insert("trust_every".to_owned(), "1s".into());
    })
    .await;
    lab.start_migration_service().await.unwrap();
    lab.start_migration_agent().await.unwrap();
    lab
}

/// Types a line of an operator.
async fn typed(lab: &Lab, line: &str) -> Finished {
    let bin = lab.node().dir().join("bin");
    let script = format!("export PATH={}:$PATH\n{line}\n", bin.display());
    process::run(Path::new("/bin/bash"), &["-c", &script], LATE).await.unwrap()
}

async fn good(lab: &Lab, line: &str) -> String {
    let done = typed(lab, line).await;
    assert_eq!(done.code, Some(0), "{line}: {}{}", done.stdout, done.stderr);
    done.stdout
}

/// How the agent's certificate stands, as its status says.
async fn certificate(lab: &World) -> Value {
    let agent = Http::new(&lab.migration_agent_status_url(), OWN_AGENT).unwrap();
    let answer = agent.without_retries().execute(Call::get(&["status"])).await;
    let Ok(answer) = answer else { return Value::Null };
    answer.json::<Value>("a status").unwrap()["certificate"].clone()
}

fn trust_dir(lab: &Lab) -> PathBuf {
    lab.dir().join("cn/migration-agent/trust")
}

/// Restarts the agent, so that its next round is now.
async fn again(lab: &mut Lab) {
    lab.end("migration-agent", false).await.unwrap();
    lab.start_migration_agent().await.unwrap();
}

#[tokio::test]
async fn a_revoked_agent_is_told_so_in_words_and_let_in_again_with_a_new_key() {
    let mut lab = lab().await;
    let cn = lab.node().cn_uuid().to_owned();
    until("the agent is in", async || certificate(&lab).await["needs"].is_null()).await;
    let first = certificate(&lab).await["key"].clone();
    assert!(good(&lab, "sdc-migrate trust list").await.contains(&format!("{cn}.migration-agent")));

    good(&lab, &format!("sdc-migrate trust revoke {cn}")).await;
    again(&mut lab).await;
    until("the agent says that it is refused", async || {
        let needs = certificate(&lab).await["needs"].clone();
        needs.as_str().is_some_and(|text| text.contains("refuses it") && text.contains("evoked"))
    })
    .await;

    // The key is revoked, whatever token comes with it; a new one is let in.
    let (token, dir) = (format!("sdc-migrate trust token {cn}"), trust_dir(&lab));
    lab.end("migration-agent", false).await.unwrap();
    std::fs::remove_file(dir.join("identity.json")).unwrap();
    let join = dir.join("join-token");
    good(&lab, &format!("umask 077; {token} > {}", join.display())).await;
    lab.start_migration_agent().await.unwrap();
    until("the agent is in again", async || {
        let now = certificate(&lab).await;
        now["until"].is_string() && now["needs"].is_null() && now["key"] != first
    })
    .await;
    // It goes after the certificate is in use.
    until("the token is removed", async || !join.exists()).await;
}

#[tokio::test]
async fn no_key_is_shown_logged_or_readable_by_others() {
    use std::os::unix::fs::PermissionsExt as _;
    let lab = lab().await;
    until("the agent is in", async || certificate(&lab).await["until"].is_string()).await;
    let cn = lab.dir().join("cn");
    for file in ["migration-agent/trust/identity.json", "migration-service/authority.json"] {
        let mode = std::fs::metadata(cn.join(file)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{file}");
        let text = std::fs::read_to_string(cn.join(file)).unwrap();
        assert!(text.contains("PRIVATE KEY"), "{file}");
    }
    // Nor is one in an environment or on a command line.
    for name in ["migration-agent", "migration-service"] {
        for file in ["environ", "cmdline"] {
            let path = format!("/proc/{}/{file}", lab.pid(name).unwrap());
            let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
            assert!(
                !text.contains("PRIVATE KEY") && !text.contains("sdc-join-1"),
                "{name}: {text}"
            );
        }
    }
    let shown = [
        good(&lab, "sdc-migrate trust list -j").await,
        good(&lab, "sdc-migrate trust export").await,
        good(&lab, "migration-agent status").await,
        std::fs::read_to_string(cn.join("migration-agent.log")).unwrap(),
        std::fs::read_to_string(cn.join("migration-service.log")).unwrap(),
    ];
    for text in shown {
        assert!(!text.contains("PRIVATE KEY") && !text.contains("sdc-join-1"), "{text}");
    }
}
