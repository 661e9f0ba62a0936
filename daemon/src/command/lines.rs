// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Splits a command's output into lines while it is read, so that a long listing needs little memory.

use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

use super::LineSink;
use super::error::CommandError;
use super::program::Program;

/// Bytes that are read at once: few, because other tasks of the thread wait for these lines.
pub(super) const CHUNK: usize = 8 * 1024;
/// The longest line; a longer one is an error.
pub(super) const LONGEST: usize = 1024 * 1024;

/// Calls `each` with every line of the stream; returns what follows the last newline.
pub(super) async fn split(
    program: Program,
    stream: impl AsyncRead + Unpin,
    cap: u64,
    each: LineSink<'_>,
) -> Result<Vec<u8>, CommandError> {
    let mut stream = BufReader::with_capacity(CHUNK, stream);
    let (mut line, mut total) = (Vec::new(), 0);
    loop {
        let mut rest = (&mut stream).take(LONGEST as u64 + 1);
        let read = rest.read_until(b'\n', &mut line).await;
        total += read.map_err(|e| CommandError::Io { program, error: Arc::new(e) })? as u64;
        if total > cap {
            return Err(CommandError::TooMuch { program, cap });
        }
        match line.strip_suffix(b"\n") {
            Some(whole) => each(whole),
            None if line.len() > LONGEST => {
                return Err(CommandError::TooMuch { program, cap: LONGEST as u64 });
            }
            None => return Ok(line),
        }
        line.clear();
        if stream.buffer().is_empty() {
            // Other readings go on beside a long listing.
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests;
