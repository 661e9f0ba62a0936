// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What operators ask of volumes: `sdc-voladm` and `sdc-volapi` look at volapi, VMAPI and the nodes, `sdc-pkgadm` at
//! volume packages. They ask over HTTP alone.

#![forbid(unsafe_code)]

pub mod pkgadm; // sdc-pkgadm: volume packages, for operators

pub mod voladm; // sdc-voladm and sdc-volapi: what operators ask
