// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What every daemon of this project does besides its work. Nothing here knows of zones, NICs or
//! routes; an agent names what it works on, such as a VM, and nothing here looks at the name. Of a node's
//! programs only the names and places are known, and what a person does where one is needed.
//!
//! Where to start: an agent's `main` reads its file with [`Fields`], logs with
//! [`log::init`], waits for the end with [`Shutdown`], runs its loops as [`Tasks`] and ends by [`exit`].
//! `docs/agents.md` shows a small one.
//!
//! Modules, highest first; each uses only modules listed below it.

#![forbid(unsafe_code)]

pub mod agent; // what the agents of a node have in common

pub mod health; // whether a service answers

pub mod metrics; // /metrics

pub mod cli; // command lines: grammar, lists, progress

pub mod brake; // the measures of a mass-delete brake

pub mod state_file; // what outlives the process

pub mod json_lines; // an append-only file

pub mod schedule; // the VMs that are to be worked on

pub mod approval; // what an operator approves

pub mod pace; // the budget of requests

pub mod http; // HTTP with caps and deadlines, event streams that resume

pub mod journal; // the ring of serialised events

pub mod tasks; // named tasks and the shutdown signal

pub mod lock; // the single-instance lock

pub mod descriptors; // the limit of open files

pub mod process; // what the system says about this process

pub mod timing; // the clock, random waits, back-off

pub mod disk; // small files on the disk

pub mod kept; // what a service keeps in a zone

pub mod smf; // whose program a service starts

pub mod command; // the one way to run a program

pub mod config; // configuration files

pub mod needs; // the states that need a person, and the command for each

pub mod exit; // one way to end a program

pub mod log; // bunyan logs

pub mod text; // text of others, made harmless; numbers of things

pub mod wall; // the time of day

pub use config::{ConfigError, Fields, Window};
pub use lock::Lock;
pub use tasks::{Shutdown, Tasks};
