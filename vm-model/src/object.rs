// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The VM object.

/// A VM object: its fields in the order in which they were set.
pub type VmObject = serde_json::Map<String, serde_json::Value>;
