// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.
//! A long listing, and streams that are cut anywhere.

use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};

use tokio::io::ReadBuf;

use super::*;

/// A listing of very many snapshots, made while it is read; it knows how far its reader is behind.
struct Listing {
    next: u32,
    of: u32,
    ready: Vec<u8>,
    given: Arc<Mutex<usize>>,
}

fn snapshot(n: u32) -> String {
    format!("-\t15000{n:05}\t-\tzones/z@vmsnap-{n}\t-\t-\t-\t-\t-\tsnapshot\t-\t1\t-\t-\t4096\t-\n")
}

impl AsyncRead for Listing {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        while self.ready.len() < into.remaining() && self.next < self.of {
            let line = snapshot(self.next);
            self.ready.extend_from_slice(line.as_bytes());
            self.next += 1;
        }
        let count = self.ready.len().min(into.remaining());
        into.put_slice(&self.ready[..count]);
        self.ready.drain(..count);
        *self.given.lock().unwrap() += count;
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn long_listing_is_not_held_in_memory() {
    const OF: u32 = 50_000;
    let given = Arc::new(Mutex::new(0));
    let listing = Listing { next: 0, of: OF, ready: Vec::new(), given: given.clone() };
    let (mut taken, mut furthest) = (0, 0);
    let mut rows = 0;
    let mut each = |line: &[u8]| {
        furthest = furthest.max(*given.lock().unwrap() - taken);
        taken += line.len() + 1;
        assert_eq!([line, b"\n"].concat(), snapshot(rows).as_bytes());
        rows += 1;
    };
    split(Program::Zfs, listing, u64::MAX, &mut each).await.unwrap();
    assert!(taken > 3 * 1024 * 1024, "{taken} bytes are no long listing");
    assert_eq!(taken, *given.lock().unwrap());
    assert!(furthest <= CHUNK + 100, "{furthest} bytes were read ahead of their lines");
    assert_eq!(rows, OF);
}

#[tokio::test]
async fn refuses_an_endless_line_and_too_much_output() {
    let endless = tokio::io::repeat(b'x');
    let error =
        split(Program::Zfs, endless, u64::MAX, &mut |_| panic!("no line")).await.unwrap_err();
    assert!(matches!(error, CommandError::TooMuch { cap, .. } if cap == LONGEST as u64));
    let flood = tokio::io::repeat(b'\n');
    let error = split(Program::Zfs, flood, 1000, &mut |_| ()).await.unwrap_err();
    assert!(matches!(error, CommandError::TooMuch { cap: 1000, .. }));
}
