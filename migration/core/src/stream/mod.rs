// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A dataset's bytes from one agent to another: one connection for each stream of `zfs send`, which the caller makes
//! and whose ends are authenticated.
//!
//! The target's agent issues a one-time [`Token`] for what is to be received ([`Tokens`]), and answers the
//! offer of the source's agent with it. It names the stream; only the agent that made the offer opens it.
//!
//! | who | sends | bytes |
//! | --- | --- | --- |
//! | source | opening | magic, token |
//! | source | frames | kind, number from 0, length, content |
//! | source | last frame | the same; its content begins with the number of frames and of bytes |
//! | source | end of its direction | |
//! | target | receipt | both numbers, once the receiver took everything |
//!
//! The last frame is sent only when the source of the bytes ended well, and fed only when both numbers are right and
//! nothing follows: a stream that was cut is never a whole one to `zfs receive`. What is not right is refused with
//! its reason ([`Refused`]) and counted ([`Refusals`]). A direction holds one frame in memory.
//!
//! All streams of a node, in both directions, share one [`Rate`]. [`Meter`] counts what has passed.
//!
//! Here: `send` and `receive` are the loops; `rate` holds the limit; `token` knows what may be opened;
//! `frame` has the format and is pure; `refused` has the reasons.

mod frame;
mod meter;
mod rate;
mod receive;
mod refused;
mod send;
mod token;

#[cfg(test)]
mod tests;

pub use frame::FRAME;
pub use meter::Meter;
pub use rate::Rate;
pub use receive::{Incoming, accept};
pub use refused::{Refusals, Refused, StreamError};
pub use send::send;
pub use token::{NoToken, Token, Tokens};
