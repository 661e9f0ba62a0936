// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Splits a command's output into lines while it is read, so that a long listing needs little memory.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::seam::{CommandError, LineSink, Tool};

/// Bytes that are read at once: few, because other tasks of the thread wait for these lines.
pub(super) const CHUNK: usize = 8 * 1024;
/// The longest line; a longer one is an error.
pub(super) const LONGEST: usize = 1024 * 1024;

/// Calls `each` with every line of the stream; returns what follows the last newline.
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
        // Other readings go on beside a long listing.
        tokio::task::yield_now().await;
    }
    Ok(begun)
}

#[cfg(test)]
mod tests;
