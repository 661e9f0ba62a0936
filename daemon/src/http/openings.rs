// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Connections that have proved or opened nothing yet: few, and of each address fewer. A peer that does so does it at
//! once; the oldest that has not makes room for the next. Pure but for the notice.

use std::collections::VecDeque;
use std::net::IpAddr;

use tokio::sync::oneshot;

/// Connections at once that have opened nothing, and those of one address.
const MOST: usize = 64;
const MOST_OF_ONE: usize = 16;

/// The connections that have opened nothing yet, the oldest first.
#[derive(Debug, Default)]
pub struct Openings {
    next: u64,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    from: IpAddr,
    _notice: oneshot::Sender<()>,
}

impl Openings {
    /// Takes a connection. Returns its number, and what ends when it has to make room.
    pub fn enter(&mut self, from: IpAddr) -> (u64, oneshot::Receiver<()>) {
        let of_one = self.waiting.iter().filter(|it| it.from == from).count();
        let goes = match of_one {
            MOST_OF_ONE.. => self.waiting.iter().position(|it| it.from == from),
            _ if self.waiting.len() >= MOST => Some(0),
            _ => None,
        };
        if let Some(at) = goes {
            self.waiting.remove(at);
        }
        let (notice, room) = oneshot::channel();
        let number = self.next;
        self.next += 1;
        self.waiting.push_back(Waiting { number, from, _notice: notice });
        (number, room)
    }

    /// A connection has opened a stream, or has ended.
    pub fn leave(&mut self, number: u64) {
        self.waiting.retain(|it| it.number != number);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn the_oldest_of_an_address_makes_room_and_then_the_oldest_of_all() {
        let mut openings = Openings::default();
        let mut one: Vec<_> = (0..20).map(|_| openings.enter(address(1))).collect();
        let ended: Vec<bool> = one
            .iter_mut()
            .map(|it| it.1.try_recv().is_err_and(|why| why == oneshot::error::TryRecvError::Closed))
            .collect();
        assert_eq!(ended.iter().filter(|it| **it).count(), 4);
        assert!(ended[..4].iter().all(|it| *it));
        let _others: Vec<_> = (0..48).map(|at| openings.enter(address(10 + at))).collect();
        assert_eq!(one[4].1.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        let last = openings.enter(address(2));
        assert_eq!(one[4].1.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        openings.leave(last.0);
        let mut again = openings.enter(address(3));
        assert_eq!(one[5].1.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        assert_eq!(again.1.try_recv(), Err(oneshot::error::TryRecvError::Empty));
    }
}
