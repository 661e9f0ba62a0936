// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What `docs/trust.md` has an operator type, typed as it stands there: the first day, a node that was installed again,
//! a compromised node, another authority, an operator on another machine.

use super::*;
use crate::docs::{commands, document};

/// The lines below a heading, without what is said beside them.
fn shown(heading: &str) -> Vec<String> {
    let all = commands(&document("docs/trust.md"), heading);
    all.lines().map(|line| line.split("   ").next().unwrap().to_owned()).collect()
}

/// A lab into which nobody is let but by a person.
struct ByHand {
    lab: Lab,
    cn: String,
}

impl ByHand {
    /// Types a line of the page; what it has in capitals is filled in, and the agent's directory is the lab's.
    async fn types(&self, line: &str, key: &str) -> Finished {
        let dir = trust_dir(&self.lab).display().to_string();
        let line = line.replace("/var/db/migration-agent/trust", &dir);
        let host = self.lab.centre().migrations.trust.to_string();
        let line = line.replace(" CN", &format!(" {}", self.cn)).replace("KEY", key);
        let home = self.lab.dir().display().to_string();
        typed(&self.lab, &format!("export HOME={home}\n{}", line.replace("HOST:5320", &host))).await
    }

    async fn good(&self, line: &str) -> String {
        let done = self.types(line, "").await;
        assert_eq!(done.code, Some(0), "{line}: {}{}", done.stdout, done.stderr);
        done.stdout
    }

    /// Makes a token and puts it on the node, as the first day's lines do.
    async fn token(&self) {
        let [_, token, make, put, _] = &shown("The first day")[..] else { panic!("other lines") };
        let token = self.good(token).await.lines().next().unwrap().to_owned();
        self.good(make).await;
        self.good(&format!("printf %s '{token}' | {put}")).await;
    }

    async fn is_in(&self) -> Value {
        until("the agent is in", async || {
            let now = certificate(&self.lab).await;
            now["until"].is_string() && now["needs"].is_null()
        })
        .await;
        certificate(&self.lab).await["key"].clone()
    }

    /// The programs that are revoked, as the service's status says.
    async fn revoked(&self) -> Value {
        let page = self.good("migration-service status").await;
        serde_json::from_str::<Value>(&page).unwrap()["revoked"].clone()
    }

    /// The agent loses its key, and starts again.
    async fn forgets(&mut self) {
        self.lab.end("migration-agent", false).await.unwrap();
        std::fs::remove_file(trust_dir(&self.lab).join("identity.json")).unwrap();
        self.lab.start_migration_agent().await.unwrap();
    }

    async fn key(&self) -> String {
        until("it waits", async || {
            let needs = certificate(&self.lab).await["needs"].clone();
            needs.as_str().is_some_and(|needs| needs.contains("trust approve, key "))
        })
        .await;
        let needs = certificate(&self.lab).await["needs"].clone();
        let (_, key) = needs.as_str().unwrap().split_once("key ").unwrap();
        key.split_whitespace().next().unwrap().to_owned()
    }
}

#[tokio::test]
async fn the_page_is_typed_from_the_first_day_to_another_authority() {
    let mut lab = Lab::start(|options| {
        (options.vms, options.by_hand) = (1, true);
        options.migration_agent.insert("trust_every".to_owned(), "1s".into());
    })
    .await;
    lab.start_migration_service().await.unwrap();
    lab.start_migration_agent().await.unwrap();
    let cn = lab.node().cn_uuid().to_owned();
    let mut by_hand = ByHand { lab, cn };

    // The first day.
    let status = by_hand.good("migration-service status").await;
    assert!(status.contains("sdc-migrate trust init"), "{status}");
    by_hand.good(&shown("The first day")[0]).await;
    by_hand.token().await;
    let first = by_hand.is_in().await;
    let status = by_hand.good("migration-agent status").await;
    let until_when = certificate(&by_hand.lab).await["until"].as_str().unwrap()[..10].to_owned();
    assert!(status.contains(&until_when), "{status}");
    let done = by_hand.good(&shown("The first day")[4]).await;
    assert!(done.contains("required of every node since"), "{done}");

    // A node that was installed again has another key, which waits.
    by_hand.forgets().await;
    by_hand.token().await;
    let [both, lets_in] = &shown("A new node, a node that was installed again")[..] else {
        panic!("other lines")
    };
    let key = by_hand.key().await;
    let refused = by_hand.types(both, "").await;
    assert_eq!(refused.code, Some(1));
    for print in [key.as_str(), first.as_str().unwrap()] {
        assert!(refused.stderr.contains(print), "{}", refused.stderr);
    }
    assert_eq!(by_hand.types(lets_in, &key).await.code, Some(0));
    assert_eq!(by_hand.is_in().await, key);

    // A compromised node: both sides say it, and when it is clean it joins again.
    by_hand.good(&shown("A lost or stolen key, a compromised node")[0]).await;
    until("the node says it", async || {
        by_hand.good("migration-agent status").await.contains("evoked")
    })
    .await;
    let told = format!("{}.migration-agent", by_hand.cn);
    let revoked = by_hand.revoked().await;
    assert!(revoked[0].as_str().is_some_and(|it| it.starts_with(&told)), "{revoked}");
    by_hand.forgets().await;
    by_hand.token().await;
    assert_ne!(by_hand.is_in().await, key);
    assert_eq!(by_hand.revoked().await, Value::Array(Vec::new()));

    // Another authority.
    let [begin, list, end] = &shown("A new authority")[..] else { panic!("other lines") };
    let old = certificate(&by_hand.lab).await["authority"].clone();
    by_hand.good(begin).await;
    until("the agent has renewed", async || {
        by_hand.good(list).await;
        let now = certificate(&by_hand.lab).await["authority"].clone();
        now.is_string() && now != old
    })
    .await;
    by_hand.good(end).await;
    by_hand.is_in().await;

    // An operator on another machine.
    let [token, join, approve] = &shown("Operators on other machines")[..] else {
        panic!("other lines")
    };
    let waits = by_hand.types(&format!("{token} | {join}"), "").await.stderr;
    let key = waits.split("key ").nth(1).unwrap().split_whitespace().next().unwrap();
    assert_eq!(by_hand.types(approve, key).await.code, Some(0));
    let his = by_hand.good("sdc-migrate trust --trust-url https://HOST:5320 list").await;
    assert!(his.contains(&told), "{his}");
    by_hand.lab.stop().await;
}
