// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node that is declared dead while its agent is only stopped: real programs on two nodes of the lab.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use sdc_clients::Http;
use sdc_clients::http::Call;
use serde_json::json;
use testbed::lab::{World, seed};
use testbed::moving::judge::{Copy, Judge};
use testbed::moving::subject::VM;
use testbed::process;

use super::common::{LATE, Lab, signal, until};

/// The agent asks the service after such a silence; in production after a minute.
const ASK_AFTER: &str = "1s";
/// It looks every ten seconds, and halts and hides the copy then.
const STOPPED: Duration = Duration::from_secs(40);

async fn typed(world: &World, line: &str) -> String {
    let bin = world.node().dir().join("bin");
    let script = format!("export PATH={}:$PATH\n{line}\n", bin.display());
    let done = process::run(Path::new("/bin/bash"), &["-c", &script], LATE).await.unwrap();
    assert_eq!(done.code, Some(0), "{line}: {}{}", done.stdout, done.stderr);
    done.stdout
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // M120 M121
async fn a_copy_whose_node_was_only_cut_off_is_stopped_and_hidden_within_a_minute_and_pages() {
    let mut lab = Lab::start(|options| {
        (options.speed, options.vms) = (600, 1);
        options.migration_agent.insert("ask_after".to_owned(), json!(ASK_AFTER));
    })
    .await;
    let mut other = lab.beside(1).await.unwrap();
    other.start_vminfod().await.unwrap();
    for world in [&mut *lab, &mut other] {
        let vms = world.hub().unwrap().vms(true).await.unwrap().vms;
        seed::fill_right(world, &vms).unwrap();
        world.start_migration_agent().await.unwrap();
    }
    lab.start_migration_service().await.unwrap();
    lab.provision().await.unwrap();
    typed(&lab, &format!("sdc-migrate begin {VM}")).await;
    typed(&lab, &format!("sdc-migrate sync {VM}")).await;

    let agent = lab.pid("migration-agent").unwrap();
    signal(agent, Signal::STOP);
    let cn = lab.node().cn_uuid().to_owned();
    typed(&lab, &format!("sdc-migrate switch --source-dead {cn} -y {VM}")).await;
    let judge = Judge::new(VM);
    let is_up = |copy: Copy| copy.running && copy.autoboot && !copy.hidden;
    assert!(is_up(judge.copy(other.node()).unwrap()), "it was switched");
    assert!(is_up(judge.copy(lab.node()).unwrap()), "its node is only cut off");
    let pages = format!("http://{}", lab.centre().migrations.status);
    let pages = Http::new(&pages, "test").unwrap();
    let metrics = async || {
        let metrics = pages.execute(Call::get(&["metrics"])).await.unwrap();
        String::from_utf8_lossy(metrics.body()).into_owned()
    };
    assert!(metrics().await.contains("migration_service_migrations_returned 0"));

    signal(agent, Signal::CONT);
    let began = tokio::time::Instant::now();
    until("the old copy is stopped and hidden", async || {
        judge.copy(lab.node()).is_some_and(|copy| !copy.running && copy.hidden && !copy.autoboot)
    })
    .await;
    assert!(began.elapsed() < STOPPED, "{:?}", began.elapsed());
    assert!(metrics().await.contains("migration_service_migrations_returned 1"));
    assert!(is_up(judge.copy(other.node()).unwrap()), "the new one runs on");
    other.stop().await.unwrap();
    lab.stop().await;
}
