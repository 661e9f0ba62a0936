// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The frame of an agent (net-agent, vm-agent, migration-agent, fleet-agent): a configuration that the shipped
//! agent can read too, a loopback port for pages, a unix socket for the operator, one running copy, who the node
//! is, whether anything may be written now, and what the operator sees of it.

mod verbs; // the command line

mod ask; // what the command line asks a running agent

mod run; // an agent from the command line to its end

mod routes; // the listeners, and what their routes share

mod identify; // the task that asks who the node is

mod claims; // what an operator has decided about this machine

mod status; // what the operator sees

mod gate; // whether the agent may write now

mod census; // whether a second machine has this node's uuid

mod identity; // who the node is

pub mod hub; // where vminfod is

pub mod sibling; // where a service is, by where another one is

mod basics; // the part of the configuration that all agents have

mod replaced; // whether a copy here may have been replaced

pub use ask::running_plan;
pub use basics::{Basics, Config, FileArgs, Files, Keys, Mode, Places};
pub use census::{Census, SecondMachine, server_nics};
pub use claims::{Claims, Unclaimed};
pub use gate::{Foreign, Gate, Permit, Refusal};
pub use identify::{find_uuid, identify};
pub use identity::{Identity, Unidentified};
pub use replaced::Replaced;
pub use routes::{ENDPOINTS, approval_json, approve, claim, invalid, listen, pages};
pub use run::{ServeError, check, serve, work};
pub use status::{Counter, State, Status};
pub use verbs::{Decide, Target, Verbs, main};

/// Makes the enum of an agent's counters: the variant, the name in `/status`, the name in `/metrics`, the help.
#[macro_export]
macro_rules! counters {
    ($($variant:ident, $name:literal, $metric:literal, $help:literal;)+) => {
        /// The counters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Count { $(#[doc = $help] $variant),+ }

        impl $crate::agent::Counter for Count {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            fn metric(self) -> (&'static str, &'static str) {
                match self { $(Self::$variant => ($metric, $help)),+ }
            }
        }
    };
}
