// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Two nodes, and a stream between them that is slow.

use sdc_clients::vminfod::VmFields as _;
use testbed::moving::subject::VM;

use super::*;
use crate::common::centre::{nodes, provisioned};

pub struct Pair {
    pub lab: Lab,
    pub other: World,
}

impl Pair {
    /// Starts the nodes with a VM on the first, and a migration to the second that has begun.
    pub async fn start() -> Pair {
        let (mut lab, other) = nodes(|options| {
            options.migration_agent.insert("trust_every".to_owned(), "1s".into());
        })
        .await;
        provisioned(&mut lab).await;
        let pair = Pair { lab, other };
        let to = pair.other.node().cn_uuid();
        good(&pair.lab, &format!("sdc-migrate begin -y -n {to} {VM}")).await;
        assert!(pair.lab.client().vm(VM, true).await.unwrap().state() == Some("running"));
        pair
    }

    /// How the sync goes that was begun last.
    pub async fn sync(&self) -> String {
        let all = Http::new(&self.lab.migrations_url(), OWN_AGENT).unwrap();
        let all = all.execute(Call::get(&["migrations"])).await.unwrap();
        let all: Value = all.json("the migrations").unwrap();
        let last = all[0]["progress_history"].as_array().and_then(|all| all.last()).cloned();
        last.unwrap_or_default()["state"].as_str().unwrap_or_default().to_owned()
    }

    pub async fn stop(self) {
        self.other.stop().await.unwrap();
        self.lab.stop().await;
    }
}

/// Begins a sync whose stream takes minutes, and waits until it runs.
pub async fn slow_stream(pair: &Pair) {
    let lab = &pair.lab;
    lab.node().write_file(&format!("zones/{VM}"), "root/large", &vec![7; 30 << 20]).unwrap();
    good(lab, "sdc-migrate set zfs_send_mbps_limit 1").await;
    good(lab, &format!("sdc-migrate sync {VM} --no-wait")).await;
    until("bytes are on their way", async || {
        let status = super::super::common::status(&lab.migration_agent_status_url()).await;
        let order = &status["migrations"][0]["order"];
        order["progress"]["current"].as_u64().is_some_and(|bytes| bytes > 0)
    })
    .await;
}
