// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Clocks that are wrong: of the node, or of the service, while the programs run. What is renewed, what is refused and
//! with which date, and that all is well again once the clock is right.

use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;

use super::*;
use crate::common::program;

/// The program, whose parts each have a clock: a file says by how much it is wrong.
struct Clocks(TempDir);

impl Clocks {
    fn new() -> Clocks {
        let dir = tempfile::tempdir().unwrap();
        let (at, program) = (dir.path().display(), program());
        // What does not know the time in steps of a second asks for it too often.
        let script = format!(
            "#!/bin/bash\nexport FAKETIME_TIMESTAMP_FILE={at}/$1 FAKETIME_CACHE_DURATION=1\n\
             [ -f \"$FAKETIME_TIMESTAMP_FILE\" ] && export LD_PRELOAD=$(ls /usr/lib/*/faketime/libfaketimeMT.so.1)\n\
             export FAKETIME_DONT_FAKE_MONOTONIC=1 NO_FAKE_STAT=1\nexec -a \"$0\" {} \"$@\"\n",
            program.display()
        );
        std::fs::write(dir.path().join("testbed"), script).unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(dir.path().join("testbed"), mode).unwrap();
        let clocks = Clocks(dir);
        clocks.put("migration-agent", "+0");
        clocks.put("migration-service", "+0");
        clocks
    }

    /// Makes a program's clock wrong by this from now on.
    fn put(&self, name: &str, by: &str) {
        let new = self.0.path().join("new");
        std::fs::write(&new, format!("{by}\n")).unwrap();
        std::fs::rename(new, self.0.path().join(format!("@{name}"))).unwrap();
    }
}

/// A lab whose agent is in, and whose clocks are right.
async fn lab_with(clocks: &Clocks) -> Lab {
    let at = clocks.0.path().join("testbed");
    let mut lab = Lab::start(|options| {
        (options.vms, options.program) = (1, at);
        options.migration_agent.insert("trust_every".to_owned(), "1s".into());
    })
    .await;
    lab.start_migration_service().await.unwrap();
    lab.start_migration_agent().await.unwrap();
    is_well(&lab).await;
    lab
}

async fn is_well(lab: &Lab) {
    until("the agent has what it needs", async || {
        let now = certificate(lab).await;
        now["until"].is_string() && now["needs"].is_null()
    })
    .await;
}

/// Waits until the agent's status has these words.
async fn is_told(lab: &Lab, words: &[&str]) {
    until(&words.join(", "), async || {
        let needs = certificate(lab).await["needs"].clone();
        needs.as_str().is_some_and(|needs| words.iter().all(|it| needs.contains(it)))
    })
    .await;
}

/// Waits until the service's status has these words.
async fn service_tells(lab: &Lab, words: &[&str]) {
    until(&words.join(", "), async || {
        let status = typed(lab, "migration-service status").await.stdout;
        words.iter().all(|it| status.contains(it))
    })
    .await;
}

/// Waits until a page of metrics has this line.
async fn measured(url: &str, line: &str) {
    let pages = Http::new(url, OWN_AGENT).unwrap();
    until(line, async || {
        let page = pages.execute(Call::get(&["metrics"])).await;
        page.is_ok_and(|page| {
            String::from_utf8_lossy(page.body()).lines().any(|it| it.starts_with(line))
        })
    })
    .await;
}

/// The agent's row, as `trust list` has it.
async fn member(lab: &Lab) -> Value {
    let listed = good(lab, "sdc-migrate trust list -j").await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["members"].as_array().map(Vec::len), Some(1), "{listed}");
    listed["members"][0].clone()
}

/// The day that is so many days from now, by a right clock.
fn day(days: i64) -> String {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    trust::date(i64::try_from(now).unwrap() + days * 86_400)[..10].to_owned()
}

/// Another authority comes and the old one goes: the agent renews meanwhile, so it and the service know each other.
async fn rotated(lab: &Lab) {
    let old = certificate(lab).await["authority"].clone();
    good(lab, "sdc-migrate trust rotate").await;
    until("the agent has renewed", async || {
        good(lab, "sdc-migrate trust list").await;
        let now = certificate(lab).await["authority"].clone();
        now.is_string() && now != old
    })
    .await;
    until("the old authority goes", async || {
        typed(lab, "sdc-migrate trust rotate").await.code == Some(0)
    })
    .await;
    is_well(lab).await;
}

#[tokio::test] // M154
#[ignore = "faketime: .ci/run does it where that is installed"]
async fn a_nodes_clock_that_is_wrong_is_told_with_the_date_and_costs_nothing_once_it_is_right() {
    let clocks = Clocks::new();
    let lab = lab_with(&clocks).await;
    let (before, pages) = (certificate(&lab).await, lab.migration_agent_status_url());
    let ended = before["until"].as_str().unwrap().to_owned();

    // By 91 days ahead: to the node its own certificate has expired, and the service's.
    clocks.put("migration-agent", "+91d");
    is_told(&lab, &["its certificate has expired on", &ended]).await;
    measured(&pages, "migration_agent_certificate_needs 1").await;
    measured(
        &lab.centre().migrations.status_url(),
        "migration_service_handshakes_refused_total{reason=\"refuses\"}",
    )
    .await;
    clocks.put("migration-agent", "+0");
    is_well(&lab).await;
    measured(&pages, "migration_agent_certificate_needs 0").await;
    let after = certificate(&lab).await;
    assert_eq!((&after["until"], &after["key"]), (&before["until"], &before["key"]));

    // Behind by 31 days: the service's certificate is not valid yet, nor its own.
    clocks.put("migration-agent", "-31d");
    is_told(&lab, &["is not valid before", "look at both clocks"]).await;
    clocks.put("migration-agent", "+0");
    is_well(&lab).await;
    assert_eq!(certificate(&lab).await["key"], before["key"]);

    // By 31 days ahead, or an hour behind, nothing is refused, and renewing goes on.
    for by in ["+31d", "-1h"] {
        clocks.put("migration-agent", by);
        rotated(&lab).await;
    }
    // Two thirds of its life have passed there: it asks again and again, and gets the one that it has.
    clocks.put("migration-agent", "+61d");
    rotated(&lab).await;
    assert_eq!(member(&lab).await["standing"], "enrolled");
    lab.stop().await;
}

#[tokio::test] // M154
#[ignore = "faketime: .ci/run does it where that is installed"]
async fn a_services_clock_that_is_wrong_is_told_with_the_date_and_costs_nothing_once_it_is_right() {
    let clocks = Clocks::new();
    let lab = lab_with(&clocks).await;
    let before = certificate(&lab).await;
    let ended = before["until"].as_str().unwrap().to_owned();
    let cn = lab.node().cn_uuid().to_owned();

    // By 31 days ahead: nothing is due, and the agent is known.
    let then = day(31);
    clocks.put("migration-service", "+31d");
    until("the agent was heard then", async || {
        let seen = member(&lab).await["seen"].clone();
        seen.as_str().is_some_and(|seen| seen >= then.as_str())
    })
    .await;
    assert!(certificate(&lab).await["needs"].is_null());

    // By 91 days: to the service the agent's certificate has expired, and it has made a new one for itself.
    clocks.put("migration-service", "+91d");
    service_tells(&lab, &[&format!("the certificate of {cn}"), &format!("has ended on {ended}")])
        .await;
    is_told(&lab, &["migration-service refuses it", "is not valid before", "look at both clocks"])
        .await;
    clocks.put("migration-service", "+0");
    is_well(&lab).await;
    assert_eq!(certificate(&lab).await["until"], before["until"]);

    // By 31 days behind: the agent's certificate is not valid yet.
    clocks.put("migration-service", "-31d");
    is_told(&lab, &["refuses this program's certificate", "not valid yet"]).await;
    clocks.put("migration-service", "+0");
    is_well(&lab).await;

    clocks.put("migration-service", "-1h");
    rotated(&lab).await;
    lab.stop().await;
}
