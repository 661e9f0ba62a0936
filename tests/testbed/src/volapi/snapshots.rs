// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.
//! Snapshots and roll-backs over a node with the real migration-agent.

mod cut; // everything that can die dies at each step

mod stories; // what clients see

mod world; // a volume on a node
