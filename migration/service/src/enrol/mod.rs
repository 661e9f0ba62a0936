// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Who is let in: the data centre's authorities, the tokens that new programs come with, and their certificates. A
//! node is let in without a person only by a token of its own, if CNAPI knows it and no other key is enrolled for it.

// Blank lines keep the modules in layer order.

#[cfg(test)]
mod tests;

mod routes;

mod verbs;

mod warnings;

mod require;

mod join;

mod enrolment;

mod authorities;

mod members;

pub use authorities::{Authorities, Place};
pub use enrolment::{Enrolment, For};
pub use routes::{JsonBody, OF_OPERATORS, OF_PROGRAMS, Whom, agents, answer, invalid, operators};
pub use verbs::identity;
