// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Places that hang, each held by a channel that the test closes when it is to answer.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

const SHORT: Duration = Duration::from_millis(1500);

/// Something that hangs until its other end is dropped.
fn hang() -> (Sender<()>, impl Fn() + Send + Sync + 'static) {
    let (answers, waits): (Sender<()>, Receiver<()>) = channel();
    let waits = Mutex::new(waits);
    let hangs = move || {
        let _until_the_other_end_is_dropped = waits.lock().unwrap().recv();
    };
    (answers, hangs)
}

fn places(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|name| format!("/zones/{name}").into()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_are_capped_and_only_of_regular_files() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    let file = dir.path().join("f");
    std::fs::write(&file, b"12345").unwrap();
    assert_eq!(root.read_capped(&file, 5).await.unwrap(), b"12345");
    assert!(matches!(root.read_capped(&file, 4).await, Err(ReadError::TooLarge { cap: 4 })));
    assert!(root.read_capped(dir.path(), 9).await.is_err_and(|e| !e.is_absent()));
    assert!(root.read_capped(&dir.path().join("g"), 9).await.is_err_and(|e| e.is_absent()));
    assert!(root.read_capped(&file.join("g"), 9).await.is_err_and(|e| e.is_absent()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walk_goes_past_a_place_that_hangs_and_gives_it_up_at_the_deadline() {
    let root = Root::new("/").with_deadline(SHORT);
    let (answers, hangs) = hang();
    let work = move |_: &Root, at: usize| {
        if at == 1 {
            hangs();
        }
        at
    };
    let all = root.walk(places(&["a", "b", "c", "d"]), Haste::Now, work).await;
    assert!(matches!(all[..], [Ok(0), Err(ReadError::Deadline(SHORT)), Ok(2), Ok(3)]), "{all:?}");
    // While it hangs it is left alone, by walks and by readings of its own.
    for _ in 0..5 {
        let all = root.walk(places(&["b", "c"]), Haste::Background, |_, at| at).await;
        assert!(matches!(all[..], [Err(ReadError::Hangs), Ok(1)]), "{all:?}");
        assert!(matches!(root.on_files("/zones/b", |_| ()).await, Err(ReadError::Hangs)));
    }
    assert_eq!(root.lanes().inside(), (1, 1), "one thread, however often it was asked");
    drop(answers);
    // The thread that was inside goes; what is asked then is answered.
    while root.lanes().hangs("/zones/b") {
        tokio::task::yield_now().await;
    }
    assert!(root.on_files("/zones/b", |_| ()).await.is_ok());
    assert_eq!(root.walk(places(&["b"]), Haste::Now, |_, at| at).await.len(), 1);
    assert_eq!(root.lanes().inside(), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reading_that_hangs_fails_at_the_deadline_and_the_next_ones_at_once() {
    let root = Root::new("/").with_deadline(Duration::from_millis(50));
    let (answers, hangs) = hang();
    let (entered, inside) = tokio::sync::oneshot::channel();
    let enter = move |_: &Root| {
        let _waited_for = entered.send(());
        hangs();
    };
    let first = root.on_files("/zones/a", enter).await;
    assert!(matches!(first, Err(ReadError::Deadline(_))));
    // On a busy machine its thread may begin only after the deadline: then nothing hung in it, and
    // the next reading is the first to wait for the one that does.
    inside.await.unwrap();
    while !root.lanes().hangs("/zones/a") {
        let next = root.on_files("/zones/a", |_| ()).await;
        assert!(matches!(next, Err(ReadError::Deadline(_) | ReadError::Hangs)), "{next:?}");
    }
    for _ in 0..100 {
        assert!(matches!(root.on_files("/zones/a", |_| ()).await, Err(ReadError::Hangs)));
    }
    assert!(root.on_files("/zones/b", |_| ()).await.is_ok());
    assert_eq!(root.lanes().inside(), (1, 1));
    drop(answers);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_a_failed_reading_and_leaves_the_lane_free() {
    let root = Root::new("/");
    let died: Result<(), _> = root.on_files("/zones/a", |_| panic!("on purpose")).await;
    assert!(died.is_err());
    for haste in [Haste::Now, Haste::Background] {
        let work = |_: &Root, at: usize| assert_ne!(at, 0, "on purpose");
        let all = root.walk(places(&["a", "b"]), haste, work).await;
        assert!(matches!(all[..], [Err(ReadError::Io(_)), Ok(())]), "{all:?}");
    }
    assert!(root.walk(Vec::new(), Haste::Now, |_, at| at).await.is_empty());
    assert_eq!(root.lanes().inside(), (0, 0));
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn work_in_the_background_steps_back_and_lowers_nobody_else() {
    let priority = || rustix::process::getpriority_process(None).unwrap();
    let root = Root::new("/");
    let before = root.on_files("a", move |_| priority()).await.unwrap();
    let lowered = root.walk(places(&["a"]), Haste::Background, move |_, _| priority()).await;
    assert_eq!(*lowered[0].as_ref().unwrap(), (before + BACKGROUND_NICE).min(19));
    assert_eq!(root.on_files("a", move |_| priority()).await.unwrap(), before);
    assert_eq!(priority(), before);
}
