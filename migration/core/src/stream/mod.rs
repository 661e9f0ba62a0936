// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A dataset's bytes from one agent to another: one TCP connection for each stream of `zfs send`.
//!
//! The target's agent issues a one-time [`Token`] for what is to be received ([`Tokens`]), and answers the
//! offer of the source's agent with its id. The token's secret is made of the id and the data centre's secret
//! ([`TokenKey`]) and crosses no network. It gives the keys of the MACs on the connection:
//!
//! | who | sends | bytes |
//! | --- | --- | --- |
//! | source | opening | magic, id of the token, MAC |
//! | source | frames | kind, number from 0, length, content, MAC of all of it |
//! | source | last frame | the same; its content begins with the number of frames and of bytes |
//! | source | end of its direction | |
//! | target | receipt | MAC of both numbers, once the receiver took everything |
//!
//! A frame is fed to the receiver only after its MAC, its number and its length are right. The last one is
//! sent only when the source of the bytes ended well, and fed only when both numbers are right and nothing
//! follows: a stream that was cut is never a whole one to `zfs receive`. What is not right is refused with
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
pub use token::{NoToken, Token, TokenKey, Tokens};
