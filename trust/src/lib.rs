// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How the programs of this project that move and snapshot VMs know each other: TLS 1.3, both ends with a certificate
//! of the data centre's own small authority. A certificate names one program ([`Identity`]); what that program may ask
//! is decided by the program that is asked. All cryptography is rustls's, ring's and rcgen's.
//!
//! | type | is |
//! | --- | --- |
//! | [`Authority`] | the key that signs, of migration-service alone |
//! | [`Held`] | what a program holds in its file: key, certificate, the authorities' certificates, what is revoked |
//! | [`Holder`] | the same in use, exchanged while it is used |
//! | [`Client`] | requests to a peer that proves its identity |
//! | [`Doors`] | connections from such peers |
//! | [`Keeper`] | the task that enrols a program and renews its certificate |
//!
//! The modules below are in layer order: each uses only modules listed below it.

#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

mod keeper; // enrols, and renews

mod client; // requests to a peer

mod doors; // connections from peers

mod ending; // connections that end with their certificates

mod holder; // what a program proves itself with, in use

mod refusals; // handshakes that were refused

mod authority; // who signs

mod held; // the same as it is kept

mod join; // the token that a new program is let in with

pub mod exchange; // what is asked of the service's trust

mod words; // why two programs do not know each other

mod certificate; // what a certificate says

mod random; // the system's chance, and digests

mod invalid; // what is of no use

pub use authority::{Authority, Revoked, key_of};
pub use certificate::{About, date};
pub use client::{Client, has_answered};
pub use doors::{Doors, connect};
pub use held::{Held, new_key, read_private};
pub use holder::{Admits, Holder, Live};
pub use invalid::Invalid;
pub use join::{NoToken, Token};
pub use keeper::{Keeper, ROUND, Standing, Unkept};
pub use random::{digest, secret};
pub use refusals::{Reason, Refusals};
pub use rustls::pki_types::UnixTime;
pub use rustls::time_provider::TimeProvider;
pub use sdc_clients::identity::Identity;
pub use words::why;
