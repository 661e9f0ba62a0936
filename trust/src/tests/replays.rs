// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! An attacker stands between any two programs: he records whole connections, plays them again to either end, and
//! changes those that there are, record by record of TLS.

use proptest::prelude::*;
use proptest::sample::Index;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, split};

use super::*;

/// What is said over a connection, each once, and what is answered.
const SAID: [&[u8]; 4] = [b"stop", b"hide", b"send", b"over"];
const ANSWERED: [&[u8]; 4] = [b"STOP", b"HIDE", b"SEND", b"OVER"];
/// The head of a record of TLS: kind, version, length.
const HEAD: usize = 5;

/// What becomes of a record on its way.
#[derive(Clone, Debug)]
enum Act {
    Passes,
    IsDropped,
    ComesTwice,
    /// The next one comes first.
    Waits,
    /// Nothing comes any more.
    IsTheEnd,
    IsFlipped(Index),
    /// One that was recorded comes before it.
    Follows(Index),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => Just(Act::Passes),
        1 => Just(Act::IsDropped),
        1 => Just(Act::ComesTwice),
        1 => Just(Act::Waits),
        1 => Just(Act::IsTheEnd),
        1 => any::<Index>().prop_map(Act::IsFlipped),
        1 => any::<Index>().prop_map(Act::Follows),
    ]
}

/// Two programs: who asks, who is asked, and what both heard.
async fn conversation(
    (client, server): (&Holder, &Arc<Holder>),
    to: Identity,
    (ours, theirs): (DuplexStream, DuplexStream),
) -> (Vec<u8>, Vec<u8>) {
    let doors = Doors::new(server);
    let asking = async {
        let mut heard = Vec::new();
        let Ok(mut stream) = connect(client, ours, to).await else { return heard };
        for said in SAID {
            let mut answer = [0; 4];
            let sent = async {
                stream.write_all(said).await?;
                stream.flush().await?;
                stream.read_exact(&mut answer).await
            };
            if sent.await.is_err() {
                break;
            }
            heard.extend(answer);
        }
        let _ = stream.shutdown().await;
        heard
    };
    let answering = async {
        let mut heard = Vec::new();
        let Ok(mut secured) = doors.open(theirs, FROM).await else { return heard };
        let mut asked = [0; 4];
        while secured.stream.read_exact(&mut asked).await.is_ok() {
            heard.extend(asked);
            let answered = secured.stream.write_all(&asked.to_ascii_uppercase()).await;
            if answered.is_err() || secured.stream.flush().await.is_err() {
                break;
            }
        }
        heard
    };
    tokio::join!(asking, answering)
}

/// Carries records one way; returns all that came.
async fn carried(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    acts: &[Act],
    recorded: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    let (mut came, mut waits) = (Vec::new(), None);
    loop {
        let mut record = vec![0; HEAD];
        if from.read_exact(&mut record).await.is_err() {
            break;
        }
        record.resize(HEAD + usize::from(u16::from_be_bytes([record[3], record[4]])), 0);
        if from.read_exact(&mut record[HEAD..]).await.is_err() {
            break;
        }
        came.push(record.clone());
        let goes = match acts.get(came.len() - 1).unwrap_or(&Act::Passes) {
            Act::Passes => record,
            Act::IsDropped => Vec::new(),
            Act::ComesTwice => record.repeat(2),
            Act::Waits => {
                waits = Some(record);
                continue;
            }
            Act::IsTheEnd => break,
            Act::IsFlipped(at) => {
                let at = at.index(record.len());
                record[at] ^= 1;
                record
            }
            Act::Follows(at) if recorded.is_empty() => record[at.index(record.len())..].to_vec(),
            Act::Follows(at) => [at.get(recorded), &record[..]].concat(),
        };
        let goes = [goes, waits.take().unwrap_or_default()].concat();
        if to.write_all(&goes).await.is_err() {
            break;
        }
    }
    let _ = to.write_all(&waits.unwrap_or_default()).await;
    let _ = to.shutdown().await;
    came
}

/// A conversation with him between; returns what both heard, and all records, those of the client first.
async fn between(
    pair: (&Holder, &Arc<Holder>),
    to: Identity,
    acts: (&[Act], &[Act]),
    recorded: &[Vec<u8>],
) -> (Vec<u8>, Vec<u8>, [Vec<Vec<u8>>; 2]) {
    let ((ours, near), (far, theirs)) = (duplex(1 << 16), duplex(1 << 16));
    let ((from_client, to_client), (from_server, to_server)) = (split(near), split(far));
    let there = carried(from_client, to_server, acts.0, recorded);
    let back = carried(from_server, to_client, acts.1, recorded);
    let ((answers, asked), there, back) =
        tokio::join!(conversation(pair, to, (ours, theirs)), there, back);
    (answers, asked, [there, back])
}

/// Plays bytes to a program, and says nothing else.
async fn played(mut stream: DuplexStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

/// The programs, each with its key.
fn programs() -> Vec<(Identity, Arc<Holder>)> {
    let (clock, authority) = (Clock::at(NOW), Authority::new(NOW).unwrap());
    let all = [Identity::Service, ONE, TWO, Identity::Volapi];
    let known = || known(&[&authority], &[]);
    all.into_iter().map(|it| (it, holder(&clock, &authority, it, known()))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test] // M122
    fn nothing_that_was_recorded_is_taken_again(
        who in (any::<Index>(), any::<Index>()),
        there in proptest::collection::vec(act(), 0..12), back in proptest::collection::vec(act(), 0..12),
        order in proptest::collection::vec(any::<Index>(), 1..12), is_in_order in any::<bool>(),
        cut in any::<Index>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let programs = programs();
            let ((_, client), (to, server)) = (who.0.get(&programs), who.1.get(&programs));
            let pair = (&**client, server);
            // Two whole connections are recorded.
            let mut recorded = [Vec::new(), Vec::new()];
            for _ in 0..2 {
                let (answers, asked, records) = between(pair, *to, (&[], &[]), &[]).await;
                assert_eq!((asked, answers), (SAID.concat(), ANSWERED.concat()));
                recorded.iter_mut().zip(records).for_each(|(all, new)| all.extend(new));
            }
            let both = recorded.concat();

            // In one that there is, whatever comes is the beginning of what was sent: nothing twice, nothing else.
            let (answers, asked, _) = between(pair, *to, (&there, &back), &both).await;
            assert!(SAID.concat().starts_with(&asked), "{}", String::from_utf8_lossy(&asked));
            assert!(ANSWERED.concat().starts_with(&answers), "{}", String::from_utf8_lossy(&answers));
            assert!(answers.len() <= asked.len(), "an answer to nothing");

            // Played again to either end: whole, in another order, cut anywhere.
            for (records, is_to_server) in [(&recorded[0], true), (&recorded[1], false), (&both, true), (&both, false)] {
                let bytes = match is_in_order {
                    true => records.concat(),
                    false => order.iter().map(|at| at.get(records).clone()).collect::<Vec<_>>().concat(),
                };
                for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
                    let (ours, theirs) = duplex(1 << 20);
                    if is_to_server {
                        let doors = Doors::new(server);
                        let opening = doors.open(theirs, FROM);
                        let (opened, ()) = tokio::join!(opening, played(ours, bytes));
                        assert!(opened.is_err(), "a server accepts a replay");
                    } else {
                        let connecting = connect(client, theirs, *to);
                        let (connected, ()) = tokio::join!(connecting, played(ours, bytes));
                        assert!(connected.is_err(), "a client accepts a replay");
                    }
                }
            }
        });
    }
}
