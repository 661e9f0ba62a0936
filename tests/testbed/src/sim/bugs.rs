// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Deliberate bugs, each a guard of the programs left out. The simulator has to catch them.

use crate::bugs::bugs;

bugs! {
    /// Writes go out without If-Match.
    DropIfMatch = "drop-if-match",
    /// Nobody asks VMAPI before a delete.
    AskNoVmapi = "ask-no-vmapi",
    /// A leaked NIC goes at first sight.
    SkipSecondLook = "skip-second-look",
    /// An update is sent again although it was answered.
    WriteTwice = "write-twice",
    /// NAPI is never listed again, and the node's view never compared.
    CountOnEvents = "count-on-events",
    /// Neither sweep nor refresh nor `sync`: what no event announced is never noticed.
    CountOnSysevents = "count-on-sysevents",
    /// A command that failed halfway counts as done.
    TrustHalfAListing = "trust-half-a-listing",
    /// The stream leaves an event out.
    SkipEvent = "skip-event",
    /// The stream repeats an event.
    RepeatEvent = "repeat-event",
    /// An event is told before readers see it.
    TellBeforeCommit = "tell-before-commit",
    /// A delete is told for a VM that is there.
    FalseDelete = "false-delete",
    /// Readers wait for the node's commands.
    ReadersWait = "readers-wait",
    /// A listener is told of a change, but not of all of it.
    DropAChange = "drop-a-change",
    /// A read that should wait for a fresh reading does not.
    StaleBarrier = "stale-barrier",
    /// The agent claims an event that it was not given.
    AdvanceBeforeDelivery = "advance-before-delivery",
    /// While one listener stalls, the others wait.
    StallEverybody = "stall-everybody",
    /// Each read leaves something behind.
    LeakATask = "leak-a-task",
    /// The agent judges NAPI's list by an old view of its node.
    RememberViews = "remember-views",
    /// The agent takes VMAPI's 404 for its word that a VM was destroyed.
    TrustA404 = "trust-a-404",
    /// The agent writes to VMAPI.
    MeddleWithVms = "meddle-with-vms",
    /// A VM that stops is none of NAPI's business.
    ForgetStopped = "forget-stopped",
    /// At a start any list of zones is believed, whatever the index has.
    BelieveAnyList = "believe-any-list",
    /// What the zone index lacks is gone, whatever else is there.
    BelieveTheIndex = "believe-the-index",
    /// The brake takes what it saw last for all that the node ever had.
    ForgetTheReference = "forget-the-reference",
    /// A uuid in capitals is another uuid.
    TakeCapitalsForAnother = "take-capitals-for-another",
    /// Nobody looks at what a view lacks.
    IgnoreIncomplete = "ignore-incomplete",
    /// It does not matter which node VMAPI's word is about.
    TrustAnyServer = "trust-any-server",
    /// What the brake of vm-agent blocks is reported all the same.
    LiftTheBrake = "lift-the-brake",
    /// For vm-agent a hidden VM is gone (H2).
    TakeHiddenForGone = "take-hidden-for-gone",
    /// vm-agent reports destroyed whatever VMAPI says of the VM's node (H3).
    DestroyWithoutAsking = "destroy-without-asking",
    /// A VM that is being provisioned is destroyed for vm-agent (H1).
    DestroyTheUnborn = "destroy-the-unborn",
    /// vm-agent leaves a field out (H7).
    WriteHalfAnObject = "write-half-an-object",
    /// vm-agent puts back a state that VMAPI made up (H5).
    PutBackMadeUpStates = "put-back-made-up-states",
    /// vm-agent takes VMAPI's 503 for an answer.
    LoseTheLastEvent = "lose-the-last-event",
    /// vm-agent takes each VM for one that has just come here.
    ForgetWhatWasTold = "forget-what-was-told",
    /// vm-agent does not see that a VM is hidden.
    NameHiddenVms = "name-hidden-vms",
    /// Nobody looks whether a second machine has the node's uuid.
    MissTheSecondMachine = "miss-the-second-machine",
    /// VMs that live on another node count for the brakes as missing.
    CountWhoMoved = "count-who-moved",
    /// A record that says that it is newer is right.
    BelieveNewer = "believe-newer",
    /// A write without an answer counts as not done, or done, once and for all.
    ForgetTheUnknown = "forget-the-unknown",
    /// Whoever answers in vminfod's place is believed, whatever he has read.
    TrustAnyHub = "trust-any-hub",
}
