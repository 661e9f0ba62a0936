// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! vm-agent end to end: the real programs on a simulated node, killed and served badly, and the mock's
//! record of every request at the end.

mod kills;
mod stories;
mod storm; // everybody is killed while the node changes
mod told;
