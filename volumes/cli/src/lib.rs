// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What operators ask of volumes: `sdc-voladm` asks volapi, VMAPI, CNAPI, IMGAPI and the workflow API, has VMAPI
//! restart or remake storage VMs, and volapi delete volumes; `sdc-volapi` sends one request to volapi; `sdc-pkgadm`
//! keeps volume packages. They use HTTP alone.

#![forbid(unsafe_code)]

pub mod pkgadm; // sdc-pkgadm: volume packages, for operators

pub mod voladm; // sdc-voladm and sdc-volapi: what operators ask
