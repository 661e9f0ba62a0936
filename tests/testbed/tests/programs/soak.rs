// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A short soak: the churn runs, the daemons live, the files are written. `testbed soak` judges
//! longer ones.

use std::path::Path;
use std::sync::atomic::Ordering;

use testbed::churn::soak::{Options, soak};

#[tokio::test(flavor = "multi_thread")]
async fn a_short_soak_churns_and_tells_what_it_saw() {
    let out = tempfile::tempdir().unwrap();
    let out_dir = out.path().to_owned();
    let soaked = tokio::spawn(async move {
        let options =
            Options { minutes: 0.1, seed: Some(7), out: out_dir, vms: 8, rate: 50, listeners: 8 };
        soak(Path::new(env!("CARGO_BIN_EXE_testbed")), &options).await
    });
    let soaked = soaked.await.unwrap().unwrap();
    assert!(soaked.done.changes.load(Ordering::Relaxed) >= 5, "{:?}", soaked.done);
    assert!(soaked.counts.lines >= 8, "{:?}", soaked.counts);
    let series = |who, what| soaked.series.iter().find(|s| s.who == who && s.what == what).unwrap();
    for who in ["vminfod", "net-agent", "kvmd"] {
        assert!(series(who, "memory").values.iter().all(|rss| *rss > 1e6), "{who}");
        assert!(series(who, "descriptors").values.iter().all(|fds| *fds > 3.0), "{who}");
    }
    assert!(series("vminfod", "watches").values.iter().all(|n| *n > 0.0));
    let csv = std::fs::read_to_string(out.path().join("soak.csv")).unwrap();
    assert_eq!(csv.lines().count(), series("node", "VMs").values.len() + 1);
    assert!(std::fs::read_to_string(out.path().join("soak.svg")).unwrap().contains("<polyline"));
}
