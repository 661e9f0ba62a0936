// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Who may publish the node: the program whose claim stands in the node's entry. An entry is replaced only by a program
//! that has seen its last revision, so of two programs one holds it. Pure.

use std::time::Duration;

use sdc_clients::fleet::{Claim, Node};

/// Heartbeats without which a holder has given the node up.
pub(crate) const PATIENCE: u32 = 3;
/// Heartbeats for which a holder goes on to name a rival that is not heard any more.
const NAMED: u32 = 10;

/// What to do about the entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Write it, as the one who publishes.
    Hold,
    /// Another one publishes: add this program to the entry, so that both are named.
    Note(Box<Node>),
    /// Another one publishes, and knows.
    Wait,
}

/// What a program knows of the entry.
#[derive(Debug)]
pub(crate) struct Seat {
    me: Claim,
    /// The entry's revision: the last one that was written or read.
    revision: u64,
    holds: bool,
    /// Who holds it, while it is another one.
    holder: Option<Claim>,
    /// Who would, while this one holds it; and for how many heartbeats he was not heard.
    rival: Option<(Claim, u32)>,
    /// Since when another one's revision has not changed.
    silent_since: Option<Duration>,
}

impl Seat {
    pub(crate) fn new(me: Claim) -> Self {
        Self { me, revision: 0, holds: false, holder: None, rival: None, silent_since: None }
    }

    /// Returns true if this program may publish.
    pub(crate) fn holds(&self) -> bool {
        self.holds
    }

    pub(crate) fn me(&self) -> &Claim {
        &self.me
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The other program: the one that publishes the node, or the one that also would.
    pub(crate) fn other(&self) -> Option<&Claim> {
        self.holder.as_ref().or(self.rival.as_ref().map(|(rival, _)| rival))
    }

    pub(crate) fn rival(&self) -> Option<&Claim> {
        self.rival.as_ref().map(|(rival, _)| rival)
    }

    /// This program's own entry was written.
    pub(crate) fn wrote(&mut self, revision: u64) {
        (self.revision, self.holds, self.holder) = (revision, true, None);
        self.silent_since = None;
        if let Some((_, beats)) = &mut self.rival {
            *beats += 1;
        }
        self.rival.take_if(|(_, beats)| *beats > NAMED);
    }

    /// The note of this program was written into another one's entry.
    pub(crate) fn noted(&mut self, revision: u64) {
        self.revision = revision;
    }

    /// Judges the entry as it was read, after a write that was refused or while another one holds it. `every` is the
    /// time between heartbeats.
    pub(crate) fn judge(
        &mut self,
        entry: Option<(u64, Node)>,
        now: Duration,
        every: Duration,
    ) -> Turn {
        let Some((revision, node)) = entry else {
            self.revision = 0;
            return self.take();
        };
        let moved = self.revision != revision;
        self.revision = revision;
        if node.claim.instance == self.me.instance {
            // Its own, whose acknowledgement was lost, or with a rival's note.
            self.rival =
                node.rival.filter(|rival| rival.instance != self.me.instance).map(|it| (it, 0));
            return Turn::Hold;
        }
        let was_holder = std::mem::replace(&mut self.holds, false);
        // The earlier run on this machine is over. But one that takes the entry from a running one is a copy.
        if node.claim.machine == self.me.machine && !was_holder && self.holder.is_none() {
            return self.take();
        }
        let is_known = self.holder.as_ref() == Some(&node.claim);
        self.holder = Some(node.claim.clone());
        self.rival = None;
        let since = match self.silent_since {
            Some(since) if is_known && !moved => since,
            _ => *self.silent_since.insert(now),
        };
        if now.saturating_sub(since) >= every.saturating_mul(PATIENCE) {
            return self.take();
        }
        match node.rival.as_ref() == Some(&self.me) {
            true => Turn::Wait,
            false => Turn::Note(Box::new(Node { rival: Some(self.me.clone()), ..node })),
        }
    }

    fn take(&mut self) -> Turn {
        (self.holder, self.silent_since) = (None, None);
        Turn::Hold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(15);

    fn claim(instance: &str, machine: &str) -> Claim {
        Claim {
            instance: instance.into(),
            machine: machine.into(),
            hostname: None,
            version: "1".into(),
        }
    }

    fn node(claim: Claim, rival: Option<Claim>) -> Node {
        Node {
            cn_uuid: "cn".into(),
            claim,
            rival,
            every_s: 15,
            position: None,
            vms: 0,
            waits: None,
            programs: Vec::new(),
            needs: Vec::new(),
            left_out: 0,
        }
    }

    /// A bucket of one entry, and a clock.
    #[derive(Default)]
    struct Bucket {
        entry: Option<(u64, Node)>,
        now: Duration,
    }

    impl Bucket {
        fn put(&mut self, expected: u64, node: Node) -> Option<u64> {
            let revision = self.entry.as_ref().map_or(0, |(revision, _)| *revision);
            (revision == expected).then(|| {
                self.entry = Some((revision + 1, node));
                revision + 1
            })
        }

        /// One heartbeat of a program.
        fn beat(&mut self, seat: &mut Seat) {
            for _ in 0..3 {
                if seat.holds() || seat.revision() == 0 && self.entry.is_none() {
                    let mine = node(seat.me().clone(), seat.rival().cloned());
                    if let Some(revision) = self.put(seat.revision(), mine) {
                        return seat.wrote(revision);
                    }
                }
                match seat.judge(self.entry.clone(), self.now, EVERY) {
                    Turn::Hold => {
                        let mine = node(seat.me().clone(), seat.rival().cloned());
                        if let Some(revision) = self.put(seat.revision(), mine) {
                            return seat.wrote(revision);
                        }
                    }
                    Turn::Note(noted) => {
                        if let Some(revision) = self.put(seat.revision(), *noted) {
                            return seat.noted(revision);
                        }
                    }
                    Turn::Wait => return,
                }
            }
        }
    }

    #[test]
    fn of_two_machines_one_publishes_and_both_are_named() {
        let (mut one, mut two) = (Seat::new(claim("a", "m1")), Seat::new(claim("b", "m2")));
        let mut bucket = Bucket::default();
        for beat in 0..20 {
            bucket.beat(&mut one);
            bucket.beat(&mut two);
            bucket.now += EVERY;
            assert!(one.holds() && !two.holds(), "beat {beat}");
        }
        let (_, entry) = bucket.entry.clone().unwrap();
        assert_eq!(
            (entry.claim.instance.as_str(), entry.rival.unwrap().instance.as_str()),
            ("a", "b")
        );
        assert_eq!(one.other().unwrap().instance, "b");
        assert_eq!(two.other().unwrap().instance, "a");
        // The first one dies: the other one publishes after three heartbeats, not before.
        let mut beats = 0;
        while !two.holds() {
            bucket.beat(&mut two);
            bucket.now += EVERY;
            beats += 1;
        }
        assert_eq!(beats, PATIENCE);
        // It comes back, and finds that it lost the node.
        bucket.beat(&mut one);
        assert!(!one.holds() && two.holds());
    }

    #[test]
    fn a_rival_that_went_away_is_forgotten() {
        let (mut one, mut two) = (Seat::new(claim("a", "m1")), Seat::new(claim("b", "m2")));
        let mut bucket = Bucket::default();
        bucket.beat(&mut one);
        bucket.beat(&mut two);
        bucket.beat(&mut one);
        assert!(one.other().is_some());
        (0..=NAMED).for_each(|_| bucket.beat(&mut one));
        assert!(one.holds() && one.other().is_none());
    }

    #[test]
    fn a_restart_on_the_same_machine_publishes_at_once() {
        let mut bucket = Bucket::default();
        bucket.beat(&mut Seat::new(claim("a", "m1")));
        let mut next = Seat::new(claim("b", "m1"));
        bucket.beat(&mut next);
        assert!(next.holds() && next.other().is_none());
    }

    #[test]
    fn a_copy_of_the_state_directory_is_a_rival_too() {
        let (mut one, mut two) = (Seat::new(claim("a", "m1")), Seat::new(claim("b", "m1")));
        let mut bucket = Bucket::default();
        bucket.beat(&mut one);
        bucket.beat(&mut two);
        bucket.beat(&mut one);
        assert!(two.holds() && !one.holds(), "the first one finds that it was replaced");
        bucket.beat(&mut two);
        assert_eq!(two.other().unwrap().instance, "a");
    }

    #[test]
    fn a_write_whose_answer_was_lost_is_ones_own() {
        let mut one = Seat::new(claim("a", "m1"));
        let mut bucket = Bucket::default();
        bucket.beat(&mut one);
        let lost = node(claim("a", "m1"), None);
        bucket.put(one.revision(), lost).unwrap();
        bucket.beat(&mut one);
        assert!(one.holds());
    }
}
