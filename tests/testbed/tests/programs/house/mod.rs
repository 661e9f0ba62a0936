// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The rules of the house that can be read from the text of the repository: the numbers of `docs/contract`, the layers
//! of the crates, the names in the documents, their tables of endpoints, and the tasks. CONTRIBUTING.md states them.

mod beliefs;
mod contract;
mod endpoints;
mod layers;
mod named;
mod paths;
pub mod source;
mod targets;
mod tasks;
