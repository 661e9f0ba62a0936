// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Bytes of a compute node in, VM objects and their changes out.
//!
//! Pure: no I/O, no tokio, no clock, no unsafe code. vminfod reads the node and calls this crate;
//! the fuzz targets and the conformance runner call it without a daemon.
//!
//! To add a field to the VM object: parse its text in [`parse`], add the value to [`parts::Parts`]
//! if its source is new, set the field in [`compose`], and list its source in [`compose::origin`].
//! An attribute of the zone's configuration needs only its name, in a table of `compose/fields.rs`.
//!
//! The modules stand in the order of the data, the last step first. A module uses only modules
//! below it.

#![forbid(unsafe_code)]

/// Two VM objects → the change records that deployed clients match.
pub mod diff;

/// [`parts::Parts`] → VM object.
pub mod compose;

/// The VM object with the text of its configuration files.
pub mod outline;

/// Shows a reboot that happened between two readings of a zone's state.
pub mod reboot;

/// The set of parts of a VM that have to be read again.
pub mod stale;

/// All that one VM object is composed of.
pub mod parts;

/// The datasets and snapshots of a node, by name and mountpoint.
pub mod datasets;

/// The bytes of each source → its value.
pub mod parse;

/// The names of the sources, and the error of a source that cannot be parsed.
pub mod origin;

/// JSON, numbers, dates and texts with the rules of JavaScript.
pub mod js;

/// The VM object.
mod object;

pub use object::VmObject;
