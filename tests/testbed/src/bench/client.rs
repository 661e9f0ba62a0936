// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A minimal client of vminfod, and of whoever answers as it does.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::bail;

const PIECE: usize = 256 << 10;
/// The empty chunk that ends an answer.
const END: &[u8] = b"0\r\n\r\n";

/// One read; the end of a child must not count as its end.
pub(super) fn read(stream: &mut TcpStream, into: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match stream.read(into) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// A keep-alive connection that blocks.
pub(super) struct Client {
    stream: TcpStream,
    piece: Vec<u8>,
    /// The last bytes of the answer that is being read.
    tail: Vec<u8>,
}

impl Client {
    /// To anybody who answers as vminfod does: in chunks, ended by an empty one.
    pub(super) fn connect(address: SocketAddr) -> anyhow::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Client { stream, piece: vec![0; PIECE], tail: Vec::new() })
    }

    /// Sends a request.
    pub(super) fn send(&mut self, path: &str) -> anyhow::Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        Ok(self.stream.write_all(request.as_bytes())?)
    }

    /// Waits for the first bytes of an answer; how many came.
    ///
    /// Errors: it is a refusal.
    pub(super) fn first_bytes(&mut self) -> anyhow::Result<usize> {
        self.tail.clear();
        let count = self.read_piece()?;
        let first = self.piece.get(..count).unwrap_or_default();
        if !first.starts_with(b"HTTP/1.1 200 ") {
            bail!("the answer is {}", String::from_utf8_lossy(first));
        }
        Ok(count)
    }

    /// Reads the rest of an answer; how many bytes it had.
    pub(super) fn read_to_end(&mut self) -> anyhow::Result<usize> {
        let mut total = 0;
        while self.tail != END {
            total += self.read_piece()?;
        }
        Ok(total)
    }

    /// A whole exchange; how many bytes came.
    pub(super) fn get(&mut self, path: &str) -> anyhow::Result<usize> {
        self.send(path)?;
        Ok(self.first_bytes()? + self.read_to_end()?)
    }

    fn read_piece(&mut self) -> anyhow::Result<usize> {
        let count = read(&mut self.stream, &mut self.piece)?;
        if count == 0 {
            bail!("the connection ended");
        }
        let read = self.piece.get(..count).unwrap_or_default();
        self.tail
            .extend_from_slice(read.get(count.saturating_sub(END.len())..).unwrap_or_default());
        self.tail.drain(..self.tail.len().saturating_sub(END.len()));
        Ok(count)
    }
}
