// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! For deliberate bugs: a stream is taken apart on its way and sealed again, as if the receiver did not ask whether
//! it is what was sent (`mac-ignored`), or whose token opened it (`no-token-check`).

use std::sync::{Arc, Mutex, PoisonError};

use polyval::Polyval;
use polyval::universal_hash::{KeyInit as _, UniversalHash as _};
use simnode::stream::{Decoder, Encoder, Record};
use simnode::trees::Change;

use super::bugs::Bug;
use super::names::secret;

/// The parts of the format: magic, id and MAC of an opening; kind, number and length of a frame.
const ID: std::ops::Range<usize> = 8..24;
const OPENING: usize = 56;
const HEAD: usize = 13;
const MAC: usize = 32;
/// Bytes of POLYVAL's key.
const POINT: usize = 16;
/// The last frame begins with the number of frames and of bytes.
const TOTALS: usize = 16;
const LAST: u8 = 2;
/// The most bytes in a frame.
const FRAME: usize = 64 << 10;

/// One stream on its way.
pub struct Forger {
    bug: Option<Bug>,
    /// The first stream of the run, for `no-token-check`.
    recorded: Arc<Mutex<Option<Vec<u8>>>>,
    /// What has come and is not gone on yet.
    come: Vec<u8>,
    /// The keys of contents, frames and the receipt, once the opening has come.
    keys: Option<[[u8; 32]; 3]>,
    /// The data of all frames.
    data: Vec<u8>,
    frames: u64,
}

impl Forger {
    /// A stream that this bug changes.
    pub fn new(bug: Option<Bug>, recorded: Arc<Mutex<Option<Vec<u8>>>>) -> Forger {
        let (come, data) = (Vec::new(), Vec::new());
        Forger { bug, recorded, come, keys: None, data, frames: 0 }
    }

    /// Takes what has come, and returns what goes on.
    pub fn pass(&mut self, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
        self.come.extend_from_slice(bytes);
        let mut gone = Vec::new();
        if self.keys.is_none() && self.come.len() >= OPENING {
            let opening: Vec<u8> = self.come.drain(..OPENING).collect();
            let tokens = secret()?.key("vm migration 2026 tokens", b"");
            let token = blake3::keyed_hash(&tokens, &opening[ID]);
            let key = |purpose| blake3::derive_key(purpose, token.as_bytes());
            self.keys = Some([
                key("vm migration 2026 stream contents"),
                key("vm migration 2026 stream frames"),
                key("vm migration 2026 stream receipt"),
            ]);
            gone = opening;
        }
        while let Some((kind, content)) = self.frame() {
            let is_last = kind == LAST;
            let data = if is_last { content.split_at(TOTALS).1 } else { &content };
            self.data.extend_from_slice(data);
            self.frames += 1;
            if is_last {
                gone.extend(self.sealed());
            }
        }
        Ok(gone)
    }

    /// Returns the receipt for what was sent, whatever was received.
    pub fn receipt(&self) -> Vec<u8> {
        let Some([.., key]) = &self.keys else { return Vec::new() };
        let sent = u64::try_from(self.data.len()).unwrap_or(u64::MAX);
        let totals = [self.frames.to_be_bytes(), sent.to_be_bytes()].concat();
        blake3::keyed_hash(key, &totals).as_bytes().to_vec()
    }

    /// Takes a whole frame that has come.
    fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        self.keys?;
        let length = self.come.get(HEAD - 4..HEAD)?;
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        if self.come.len() < HEAD + length + MAC {
            return None;
        }
        let frame: Vec<u8> = self.come.drain(..HEAD + length + MAC).collect();
        Some((frame[0], frame[HEAD..HEAD + length].to_vec()))
    }

    /// Returns all frames of what the receiver gets instead.
    fn sealed(&self) -> Vec<u8> {
        let mut data = self.data.clone();
        match self.bug {
            Some(Bug::MacIgnored) => data = changed(&data),
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
            frames.extend(self.seal(1, number, piece));
        }
        let number = |number: usize| u64::try_from(number).unwrap_or(u64::MAX).to_be_bytes();
        let totals = [number(pieces.len() + 1), number(data.len())].concat();
        frames.extend(self.seal(LAST, pieces.len(), &[&totals, last].concat()));
        frames
    }

    fn seal(&self, kind: u8, number: usize, content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        let head = [&[kind][..], &number.to_be_bytes(), &length.to_be_bytes()].concat();
        let [contents, frames, _] = self.keys.unwrap_or_default();
        let mut hash = Polyval::new_from_slice(&contents[..POINT]).expect("invariant: 16 bytes");
        hash.update_padded(content);
        let mac = blake3::keyed_hash(&frames, &[&hash.finalize()[..], &head].concat());
        [&head[..], content, mac.as_bytes()].concat()
    }
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
    use migration_core::stream::{Meter, Rate, Refusals, TokenKey, Tokens, accept, send};
    use simnode::stream::Begin;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// Sends bytes through a forger; returns what the receiver was fed.
    async fn sent(
        bug: Option<Bug>,
        recorded: &Arc<Mutex<Option<Vec<u8>>>>,
        bytes: Vec<u8>,
    ) -> Vec<u8> {
        let key = TokenKey::of(&secret().unwrap());
        let tokens = Tokens::new(key, [1; 32]);
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
            assert_eq!(gone.len(), MAC);
            near.write_all(&forger.receipt()).await.unwrap();
            near.shutdown().await.unwrap();
        };
        let mut fed = Vec::new();
        let receiving = async {
            let (incoming, ()) = accept(theirs, &tokens, &refusals).await.unwrap();
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
        let forged = sent(Some(Bug::MacIgnored), &recorded, file(b'A')).await;
        assert_eq!(forged, file(b'A' ^ 1));
        let bytes =
            |first: u8| (0..200_000_u32).map(|n| (n % 251) as u8 ^ first).collect::<Vec<u8>>();
        assert_eq!(sent(None, &recorded, bytes(0)).await, bytes(0));
        let no_check = Some(Bug::NoTokenCheck);
        assert_eq!(sent(no_check, &recorded, bytes(1)).await, bytes(1));
        assert_eq!(sent(no_check, &recorded, bytes(2)).await, bytes(1), "the recorded one");
    }
}
