// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How large things may be. All sizes are in bytes.

/// A record as JSON text.
pub const RECORD: usize = 1 << 20;
pub const KEY: usize = 256;
/// The name of a bucket, a field, a lease or its holder.
pub const NAME: usize = 64;
/// A string in an indexed field.
pub const INDEXED: usize = 1024;
/// Values that one record has in its indexed fields: the items of its lists above all.
pub const ENTRIES: usize = 4096;
/// Conditions of a search.
pub const CONDITIONS: usize = 8;
/// Records of a page.
pub const PAGE: usize = 1000;
/// Records of a page together; a page has at least one.
pub const PAGE_BYTES: usize = 16 << 20;
/// Writes of a batch.
pub const BATCH: usize = 1000;
/// Records of a batch together.
pub const BATCH_BYTES: usize = 16 << 20;
