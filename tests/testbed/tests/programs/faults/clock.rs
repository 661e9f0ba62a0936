// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A daemon whose wall clock jumps while it runs: a small preloaded library tells it another time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sdc_clients::Http;
use sdc_clients::vminfod::WatchEvent;
use serde_json::{Value, json};
use simnode::{Verbs, Wait};
use testbed::lines::LineStream;
use testbed::process;
use tokio::time::Instant;

use super::super::common::{LATE, status, synced, until};
use super::rig::Rig;

/// The wall clock, so many seconds off as the file says at that moment.
const SHIFTED: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *ts)
{
    int rc = (int)syscall(SYS_clock_gettime, id, ts);
    const char *path = getenv("CLOCK_FILE");
    char text[32] = {0};
    int fd;

    if (rc == 0 && id == CLOCK_REALTIME && path != NULL && (fd = open(path, O_RDONLY)) >= 0) {
        if (read(fd, text, sizeof (text) - 1) > 0)
            ts->tv_sec += atol(text);
        (void) close(fd);
    }
    return (rc);
}
"#;

/// Builds it; none where there is no C compiler, or none for this.
async fn library(dir: &Path) -> Option<PathBuf> {
    let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
    std::fs::write(&source, SHIFTED).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let args = ["-shared".into(), "-fPIC".into(), "-o".into(), text(&library), text(&source)];
    let built = process::run("/usr/bin/cc".as_ref(), &args, LATE).await;
    (cfg!(target_os = "linux") && built.is_ok_and(|done| done.code == Some(0))).then_some(library)
}

/// A number of the status page, wherever it is.
fn number(page: &Value, key: &str) -> u64 {
    let inside = || page.as_object().into_iter().flatten().map(|(_, inner)| number(inner, key));
    page.get(key).and_then(Value::as_u64).unwrap_or_else(|| inside().max().unwrap_or(0))
}

#[tokio::test(flavor = "multi_thread")] // F31
async fn a_wall_clock_that_jumps_moves_dates_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = library(dir.path()).await else {
        eprintln!("SKIPPED: nothing here builds a library to load before the daemon");
        return;
    };
    let file = dir.path().join("offset");
    let jump = |seconds: i64| {
        let fresh = dir.path().join("fresh");
        std::fs::write(&fresh, seconds.to_string()).unwrap();
        std::fs::rename(&fresh, &file).unwrap();
    };
    jump(0);
    let before = format!("export LD_PRELOAD={} CLOCK_FILE={};", library.display(), file.display());
    let rig = Rig::start(6, &before, "").await;
    let began = Instant::now();
    let mut watcher = synced(&rig.hub()).await;
    let mut stream = LineStream::events(&Http::new(&rig.url(), "t").unwrap()).await.unwrap();
    assert_eq!(stream.next(LATE).await.unwrap()["type"], "ready");
    let (verbs, uuid) = (Verbs::new(&rig.node, Wait::none()), rig.pick("running").await);
    let refreshed = number(&status(&rig.url()).await, "refreshes");
    let day = 86_400;
    for (nth, offset) in [day, -day, 0, 1, 0, -40 * day, 40 * day].into_iter().enumerate() {
        jump(offset);
        let alias = format!("at-{nth}");
        verbs.set_field(&uuid, "alias", json!(alias)).await.unwrap();
        let told = loop {
            let event = stream.next(LATE).await.unwrap();
            if event["vm"]["alias"] == alias {
                break event;
            }
        };
        let date: jiff::Timestamp = told["date"].as_str().unwrap().parse().unwrap();
        let off = date.as_second() - jiff::Timestamp::now().as_second();
        assert!((off - offset).abs() < 60, "the date is {off} s off instead of {offset}");
        rig.shows(&uuid, "alias", &alias).await;
    }
    // Nothing was due because the clock said so: no refresh before 270 s (one may have been under
    // way), no sweep each second more than once.
    until("a sweep comes", async || number(&status(&rig.url()).await, "sweeps") > 0).await;
    let (page, ran) = (status(&rig.url()).await, began.elapsed());
    assert!(number(&page, "sweeps") <= ran.as_secs() * 2 + 10, "{ran:?}: {page}");
    assert!(number(&page, "refreshes") <= refreshed + 1 + ran.as_secs() / 270, "{ran:?}: {page}");
    while let Ok(event) = tokio::time::timeout(Duration::from_millis(10), watcher.next()).await {
        assert!(!matches!(event, WatchEvent::Lost(_)), "a listener was lost");
    }
}
