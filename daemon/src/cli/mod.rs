// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What all command lines have in common.

pub mod control; // the client of an agent's unix socket

pub mod pages; // pages of a running agent

pub mod hosts; // nodes by their host names

pub mod names; // VMs as people type them

pub mod version; // what --version says

pub mod services; // where the services are that a command asks

mod program; // how a program runs

pub mod ask; // questions before something is done

mod grammar; // options that all programs share

pub mod table; // lists

pub mod progress; // what is shown while something takes long

pub mod span; // durations

pub mod screen; // where output goes, and its colours

pub use clap_complete::Shell;
pub use grammar::{
    Generated, ListArgs, NamedListArgs, completions, man, misuse, parse, valid_config,
};
pub use program::{Usage, again, author, begin, ended, finish, late_config, main, print, run};
pub use progress::Progress;
pub use screen::{Screen, Tone};
pub use span::{ago, left, span};
pub use table::{Cell, Layout, TERMINAL, Table, UnknownColumn, facts};
pub use version::version;
