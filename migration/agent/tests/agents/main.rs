// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Agents of two simulated nodes in one process, under time that is paused: the real agents, the rules of the nodes'
//! commands, connections that are cut or changed, and deaths at every step.

#![allow(clippy::unwrap_used)]

mod world; // two nodes, their agents, what is between them

mod commands; // the nodes' programs

mod net; // requests and connections for data

mod fence; // old, repeated and foreign requests

mod back; // a node that was declared dead and was only cut off

mod moves; // datasets on their way

mod between; // what people do to the VM between two syncs

mod tenants; // what the VM's owner writes and makes

mod trees; // what the owner does to his datasets

mod clones; // what he clones there

mod wired; // a stream, and an attacker on the network

mod names; // snapshots that the VM's owner names as the agent does

mod idle; // connections that say nothing

mod slow; // nodes on which something takes long

mod snapshots; // snapshots of volumes

mod deaths; // an agent that dies at every step
