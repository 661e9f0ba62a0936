// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! End-to-end tests of the real programs, in one executable so that they are linked once. A test that changes its own
//! process (limits of descriptors) starts this executable once more: `abuse`.

#![allow(clippy::unwrap_used)] // a failed step of a test is a failed test

mod absence;
#[cfg(target_os = "linux")] // reads /proc
mod abuse;
mod agent;
mod bad_input;
#[cfg(target_os = "linux")] // reads /proc
mod broken;
mod by_hand;
#[cfg(target_os = "linux")] // reads /proc
mod chaos;
mod checks;
mod cli;
mod clients;
mod closed;
mod common;
mod compromised;
mod cut_off;
mod deploy;
mod docs;
mod documents;
mod faults;
#[cfg(target_os = "linux")] // nats-server
mod fleet_feed;
#[cfg(target_os = "linux")] // inotify
mod fswatcher;
mod garbage;
mod guides;
#[cfg(target_os = "linux")] // reads /proc
mod hangs;
mod house;
mod hub;
mod keys;
mod kit;
mod kvmd_node;
mod kvmd_qemu;
mod logs;
#[cfg(target_os = "linux")] // reads /proc
mod many_keys;
mod migration;
mod monitoring;
mod napi;
mod needs;
mod node;
#[cfg(target_os = "linux")] // zfs-fuse
mod real_zfs;
#[cfg(target_os = "linux")] // zfs-fuse
mod real_zfs_trees;
mod sessions;
mod shadow;
mod sim;
#[cfg(target_os = "linux")] // reads /proc
mod soak;
mod statements;
mod storm;
mod swarm;
mod tenants;
mod trust;
mod vm_agent;
mod volapi;
mod waits;
mod witness;
#[cfg(target_os = "linux")] // namespaces
mod zones;
