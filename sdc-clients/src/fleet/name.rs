// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The names of the streams.

/// The stream of all changes.
pub const CHANGES: &str = "CHANGES";
/// The stream with the last message of each VM.
pub const VMS: &str = "VMS";
/// The bucket of the nodes' heartbeats.
pub const NODES: &str = "NODES";
/// The stream under that bucket.
pub const KV_NODES: &str = "KV_NODES";
