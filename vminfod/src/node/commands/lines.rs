// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A command's output line by line while it is read, so that its size costs no memory.
//!
//! Lines are handed on as bytes: what they mean is for others to say.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::seam::{CommandError, LineSink, Tool};

/// How much is read at once: little, since who shares the thread waits for so many lines.
pub(super) const CHUNK: usize = 8 * 1024;
/// The longest line; a longer one is no listing.
pub(super) const LONGEST: usize = 1024 * 1024;

/// Gives `each` every line of the stream; what comes after the last newline is returned.
pub(super) async fn split(
    tool: Tool,
    mut stream: impl AsyncRead + Unpin,
    cap: u64,
    each: LineSink<'_>,
) -> Result<Vec<u8>, CommandError> {
    let mut chunk = vec![0; CHUNK];
    // The beginning of a line whose end has not come yet.
    let mut begun: Vec<u8> = Vec::new();
    let mut total: u64 = 0;
    loop {
        let count = stream
            .read(&mut chunk)
            .await
            .map_err(|e| CommandError::Io { tool, error: Arc::new(e) })?;
        let mut rest = chunk.get(..count).unwrap_or_default();
        if rest.is_empty() {
            break;
        }
        total += count as u64;
        if total > cap {
            return Err(CommandError::TooMuch { tool, cap });
        }
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end);
            if begun.is_empty() {
                each(line);
            } else {
                begun.extend_from_slice(line);
                each(&begun);
                begun.clear();
            }
            rest = after.get(1..).unwrap_or_default();
        }
        if begun.len() + rest.len() > LONGEST {
            return Err(CommandError::TooMuch { tool, cap: LONGEST as u64 });
        }
        begun.extend_from_slice(rest);
        // A long listing must not keep what is read beside it from going on.
        tokio::task::yield_now().await;
    }
    Ok(begun)
}

#[cfg(test)]
mod tests;
