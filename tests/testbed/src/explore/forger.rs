// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! For deliberate bugs: a stream is taken apart on its way and put together again, as if the connection did not prove
//! that it is what was sent (`change-ignored`), or nobody asked whose token opened it (`no-token-check`).

use std::sync::{Arc, Mutex, PoisonError};

use simnode::stream::{Decoder, Encoder, Record};
use simnode::trees::Change;

use super::bugs::Bug;

/// The parts of the format: magic and token of an opening; kind, number and length of a frame.
const OPENING: usize = 24;
const HEAD: usize = 13;
/// The last frame begins with the number of frames and of bytes.
const TOTALS: usize = 16;
const LAST: u8 = 2;
/// The most bytes in a frame.
const FRAME: usize = (64 << 10) - HEAD;

/// One stream on its way.
pub struct Forger {
    bug: Option<Bug>,
    /// The first stream of the run, for `no-token-check`.
    recorded: Arc<Mutex<Option<Vec<u8>>>>,
    /// What has come and is not gone on yet.
    come: Vec<u8>,
    /// The opening has come.
    is_open: bool,
    /// The data of all frames.
    data: Vec<u8>,
    frames: u64,
}

impl Forger {
    /// A stream that this bug changes.
    pub fn new(bug: Option<Bug>, recorded: Arc<Mutex<Option<Vec<u8>>>>) -> Forger {
        let (come, data) = (Vec::new(), Vec::new());
        Forger { bug, recorded, come, is_open: false, data, frames: 0 }
    }

    /// Takes what has come, and returns what goes on.
    pub fn pass(&mut self, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
        self.come.extend_from_slice(bytes);
        let mut gone = Vec::new();
        if !self.is_open && self.come.len() >= OPENING {
            gone = self.come.drain(..OPENING).collect();
            self.is_open = true;
        }
        while let Some((kind, content)) = self.frame() {
            let is_last = kind == LAST;
            let data = if is_last { content.split_at(TOTALS).1 } else { &content };
            self.data.extend_from_slice(data);
            self.frames += 1;
            if is_last {
                gone.extend(self.framed());
            }
        }
        Ok(gone)
    }

    /// Returns the receipt for what was sent, whatever was received.
    pub fn receipt(&self) -> Vec<u8> {
        let sent = u64::try_from(self.data.len()).unwrap_or(u64::MAX);
        [self.frames.to_be_bytes(), sent.to_be_bytes()].concat()
    }

    /// Takes a whole frame that has come.
    fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        self.is_open.then_some(())?;
        let length = self.come.get(HEAD - 4..HEAD)?;
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        if self.come.len() < HEAD + length {
            return None;
        }
        let frame: Vec<u8> = self.come.drain(..HEAD + length).collect();
        Some((frame[0], frame[HEAD..HEAD + length].to_vec()))
    }

    /// Returns all frames of what the receiver gets instead.
    fn framed(&self) -> Vec<u8> {
        let mut data = self.data.clone();
        match self.bug {
            Some(Bug::ChangeIgnored) => data = changed(&data),
            Some(Bug::NoTokenCheck) => {
                let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
                data = recorded.get_or_insert(data).clone();
            }
            _ => {}
        }
        let mut pieces: Vec<&[u8]> = data.chunks(FRAME).collect();
        let last = pieces.pop().unwrap_or_default();
        let mut frames = Vec::new();
        for (number, piece) in pieces.iter().enumerate() {
            frames.extend(frame(1, number, piece));
        }
        let number = |number: usize| u64::try_from(number).unwrap_or(u64::MAX).to_be_bytes();
        let totals = [number(pieces.len() + 1), number(data.len())].concat();
        frames.extend(frame(LAST, pieces.len(), &[&totals, last].concat()));
        frames
    }
}

fn frame(kind: u8, number: usize, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
    let number = u64::try_from(number).unwrap_or(u64::MAX);
    [&[kind][..], &number.to_be_bytes(), &length.to_be_bytes(), content].concat()
}

/// Returns a stream of `zfs send` with other contents of the files that nobody writes. Its own checksums fit.
fn changed(stream: &[u8]) -> Vec<u8> {
    let (mut decoder, mut encoder, mut bytes) =
        (Decoder::default(), Encoder::default(), Vec::new());
    decoder.push(stream);
    while let Ok(Some(mut record)) = decoder.take() {
        if let Record::Change(Change::Data(path, _, block)) = &mut record
            && path.ends_with("blob")
        {
            block.iter_mut().take(1).for_each(|byte| *byte ^= 1);
        }
        bytes.extend(encoder.frame(&record));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use migration_core::stream::{Meter, Rate, Refusals, Tokens, accept, send};
    use simnode::stream::Begin;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// Sends bytes through a forger; returns what the receiver was fed.
    async fn sent(
        bug: Option<Bug>,
        recorded: &Arc<Mutex<Option<Vec<u8>>>>,
        bytes: Vec<u8>,
    ) -> Vec<u8> {
        let tokens = Tokens::new([1; 8]);
        let token = tokens.issue(()).unwrap();
        let (ours, mut near) = duplex(1 << 20);
        let (mut far, theirs) = duplex(1 << 20);
        let mut forger = Forger::new(bug, Arc::clone(recorded));
        let (rate, meter, refusals) = (Rate::new(None), Meter::default(), Refusals::default());
        let all = (&rate, &meter, &refusals);
        let sending = send(&bytes[..], async { Ok(()) }, ours, &token, all);
        let carrying = async {
            let (mut come, mut gone) = (vec![0; 1000], Vec::new());
            while let Ok(len @ 1..) = near.read(&mut come).await {
                far.write_all(&forger.pass(&come[..len]).unwrap()).await.unwrap();
            }
            far.shutdown().await.unwrap();
            far.read_to_end(&mut gone).await.unwrap();
            assert_eq!(gone.len(), TOTALS);
            near.write_all(&forger.receipt()).await.unwrap();
            near.shutdown().await.unwrap();
        };
        let mut fed = Vec::new();
        let receiving = async {
            let (incoming, ()) = accept(theirs, &tokens, |()| true, &refusals).await.unwrap();
            incoming.feed(&mut fed, async { Ok(()) }, all).await.unwrap();
        };
        let (done, (), ()) = tokio::join!(sending, carrying, receiving);
        done.unwrap();
        fed
    }

    #[tokio::test(start_paused = true)] // M61
    async fn what_is_forged_is_taken_by_the_real_ends() {
        let recorded = Arc::default();
        let file = |content: u8| {
            let mut encoder = Encoder::default();
            let block = [vec![content], vec![b'A'; 100_000]].concat();
            let records = [
                Record::Begin(Begin::new("zones/a", "vm-migration-1", 7)),
                Record::Change(Change::Data("blob".into(), 0, block)),
                Record::End,
            ];
            records.iter().flat_map(|record| encoder.frame(record)).collect::<Vec<u8>>()
        };
        let forged = sent(Some(Bug::ChangeIgnored), &recorded, file(b'A')).await;
        assert_eq!(forged, file(b'A' ^ 1));
        let bytes =
            |first: u8| (0..200_000_u32).map(|n| (n % 251) as u8 ^ first).collect::<Vec<u8>>();
        assert_eq!(sent(None, &recorded, bytes(0)).await, bytes(0));
        let no_check = Some(Bug::NoTokenCheck);
        assert_eq!(sent(no_check, &recorded, bytes(1)).await, bytes(1));
        assert_eq!(sent(no_check, &recorded, bytes(2)).await, bytes(1), "the recorded one");
    }
}
