// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Deliberate bugs, put in at the seams, that the simulator has to catch: each is what the
//! programs would do without one of their guards.

use std::str::FromStr;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Writes go out without If-Match.
    DropIfMatch,
    /// Nobody asks VMAPI before a delete.
    AskNoVmapi,
    /// A leaked NIC goes at first sight.
    SkipSecondLook,
    /// An update is sent again although it was answered.
    WriteTwice,
    /// NAPI is never listed again, and the node's view never compared.
    CountOnEvents,
    /// Neither sweep nor refresh nor `sync`: what no event announced is never noticed.
    CountOnSysevents,
    /// A command that failed halfway counts as done.
    TrustHalfAListing,
    /// The stream leaves an event out.
    SkipEvent,
    /// The stream repeats an event.
    RepeatEvent,
    /// An event is told before readers see it.
    TellBeforeCommit,
    /// A delete is told for a VM that is there.
    FalseDelete,
    /// Readers wait for the node's commands.
    ReadersWait,
}

/// All of them, with the names they are asked for by.
pub const BUGS: [(&str, Bug); 12] = [
    ("drop-if-match", Bug::DropIfMatch),
    ("ask-no-vmapi", Bug::AskNoVmapi),
    ("skip-second-look", Bug::SkipSecondLook),
    ("write-twice", Bug::WriteTwice),
    ("count-on-events", Bug::CountOnEvents),
    ("count-on-sysevents", Bug::CountOnSysevents),
    ("trust-half-a-listing", Bug::TrustHalfAListing),
    ("skip-event", Bug::SkipEvent),
    ("repeat-event", Bug::RepeatEvent),
    ("tell-before-commit", Bug::TellBeforeCommit),
    ("false-delete", Bug::FalseDelete),
    ("readers-wait", Bug::ReadersWait),
];

impl FromStr for Bug {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || BUGS.map(|(name, _)| name).join(", ");
        let found = BUGS.iter().find(|(name, _)| *name == text);
        found.map(|(_, bug)| *bug).ok_or_else(|| format!("no bug {text:?}; there are {}", names()))
    }
}
