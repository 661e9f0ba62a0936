// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! volapi as a process, among the mock services on sockets.

mod feed; // what follows from VMAPI's changefeed

mod import; // another service's records

mod kills; // what dies, and what is left

mod many; // many clients at once

mod rig; // the services, and the process

mod gate; // holds a request
