// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Deliberate bugs, each a guard of the programs left out. The simulator has to catch them.

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
    /// A listener is told of a change, but not of all of it.
    DropAChange,
    /// A read that should wait for a fresh reading does not.
    StaleBarrier,
    /// The agent claims an event that it was not given.
    AdvanceBeforeDelivery,
    /// While one listener stalls, the others wait.
    StallEverybody,
    /// Each read leaves something behind.
    LeakATask,
    /// The agent judges NAPI's list by an old view of its node.
    RememberViews,
    /// The agent takes VMAPI's 404 for its word that a VM was destroyed.
    TrustA404,
    /// The agent writes to VMAPI.
    MeddleWithVms,
    /// A VM that stops is none of NAPI's business.
    ForgetStopped,
    /// At a start any list of zones is believed, whatever the index has.
    BelieveAnyList,
    /// The brake takes what it saw last for all that the node ever had.
    ForgetTheReference,
    /// A uuid in capitals is another uuid.
    TakeCapitalsForAnother,
    /// Nobody looks at what a view lacks.
    IgnoreIncomplete,
    /// It does not matter which node VMAPI's word is about.
    TrustAnyServer,
    /// What the brake of vm-agent blocks is reported all the same.
    LiftTheBrake,
    /// For vm-agent a hidden VM is gone (H2).
    TakeHiddenForGone,
    /// vm-agent reports destroyed whatever VMAPI says of the VM's node (H3).
    DestroyWithoutAsking,
    /// A VM that is being provisioned is destroyed for vm-agent (H1).
    DestroyTheUnborn,
    /// vm-agent leaves a field out (H7).
    WriteHalfAnObject,
    /// vm-agent puts back a state that VMAPI made up (H5).
    PutBackMadeUpStates,
    /// vm-agent takes VMAPI's 503 for an answer.
    LoseTheLastEvent,
    /// vm-agent takes each VM for one that has just come here.
    ForgetWhatWasTold,
    /// vm-agent does not see that a VM is hidden.
    NameHiddenVms,
    /// Nobody looks whether a second machine has the node's uuid.
    MissTheSecondMachine,
    /// VMs that live on another node count for the brakes as missing.
    CountWhoMoved,
    /// A record that says that it is newer is right.
    BelieveNewer,
    /// A write without an answer counts as not done, or done, once and for all.
    ForgetTheUnknown,
    /// Whoever answers in vminfod's place is believed, whatever he has read.
    TrustAnyHub,
}

/// All of them, with the names they are asked for by.
pub const BUGS: [(&str, Bug); 40] = [
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
    ("drop-a-change", Bug::DropAChange),
    ("stale-barrier", Bug::StaleBarrier),
    ("advance-before-delivery", Bug::AdvanceBeforeDelivery),
    ("stall-everybody", Bug::StallEverybody),
    ("leak-a-task", Bug::LeakATask),
    ("remember-views", Bug::RememberViews),
    ("trust-a-404", Bug::TrustA404),
    ("meddle-with-vms", Bug::MeddleWithVms),
    ("forget-stopped", Bug::ForgetStopped),
    ("believe-any-list", Bug::BelieveAnyList),
    ("forget-the-reference", Bug::ForgetTheReference),
    ("take-capitals-for-another", Bug::TakeCapitalsForAnother),
    ("ignore-incomplete", Bug::IgnoreIncomplete),
    ("trust-any-server", Bug::TrustAnyServer),
    ("lift-the-brake", Bug::LiftTheBrake),
    ("take-hidden-for-gone", Bug::TakeHiddenForGone),
    ("destroy-without-asking", Bug::DestroyWithoutAsking),
    ("destroy-the-unborn", Bug::DestroyTheUnborn),
    ("write-half-an-object", Bug::WriteHalfAnObject),
    ("put-back-made-up-states", Bug::PutBackMadeUpStates),
    ("lose-the-last-event", Bug::LoseTheLastEvent),
    ("forget-what-was-told", Bug::ForgetWhatWasTold),
    ("name-hidden-vms", Bug::NameHiddenVms),
    ("miss-the-second-machine", Bug::MissTheSecondMachine),
    ("count-who-moved", Bug::CountWhoMoved),
    ("believe-newer", Bug::BelieveNewer),
    ("forget-the-unknown", Bug::ForgetTheUnknown),
    ("trust-any-hub", Bug::TrustAnyHub),
];

impl Bug {
    /// The name it is asked for by.
    pub fn name(self) -> &'static str {
        BUGS.iter().find(|(_, bug)| *bug == self).map_or("?", |(name, _)| name)
    }
}

impl FromStr for Bug {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || BUGS.map(|(name, _)| name).join(", ");
        let found = BUGS.iter().find(|(name, _)| *name == text);
        found.map(|(_, bug)| *bug).ok_or_else(|| format!("no bug {text:?}; there are {}", names()))
    }
}
