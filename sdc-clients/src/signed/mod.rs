// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Requests that prove that their sender knows the data centre's secret, once each.
//!
//! | header | of | is |
//! | --- | --- | --- |
//! | `x-signed-nonce` | a request | a nonce that the server issued before |
//! | `x-signed-fresh` | a request | a nonce of the client, drawn for this request |
//! | `x-signed-mac` | a request | the MAC of audience, method, target, both nonces and body |
//! | `x-signed-next` | an answer | a nonce for another request |
//! | `x-signed-mac` | an answer | the MAC of audience, the request's MAC, status, next nonce and body |
//!
//! The audience is the name of the server, so that what was signed for one is of no use at another. A request
//! without a nonce that is outstanding, or with a wrong MAC, gets 401 and a fresh nonce, with which [`Signed`]
//! repeats it once. The server takes each of its nonces once, and the client takes an answer to its own request alone;
//! no clock is asked: neither a request nor an answer that was recorded is taken again.
//!
//! [`Signed`] is the client: a transport around another one. [`Verifier`] is the server, without any I/O.

#[cfg(test)]
mod tests;

mod transport;

mod verify;

mod secret;

pub use secret::{NoSecret, Secret};
pub use transport::Signed;
pub use verify::{Heard, Refused, Verifier};
