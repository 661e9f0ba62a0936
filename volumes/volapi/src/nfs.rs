// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Whether an NFS server serves: the call of ONC RPC (RFC 5531) that does nothing, over TCP.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Where every storage VM serves.
pub const PORT: u16 = 2049;

/// NFS among the programs of RPC.
const PROGRAM: u32 = 100_003;
/// The storage VMs serve one of these at least.
const VERSIONS: [u32; 2] = [3, 4];
/// The longest reply that is read: the call's own has 24 bytes and a verifier of 400 at most.
const REPLY: usize = 1024;
/// The mark of a record's last fragment.
const LAST: u32 = 1 << 31;

/// Why a server does not serve.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// No connection: nothing listens there, or there is no route to it.
    #[error("no connection: {0}")]
    Connect(#[source] io::Error),
    /// The connection ended before the reply did.
    #[error("the connection ended: {0}")]
    Cut(#[source] io::Error),
    /// What came is no reply to the call.
    #[error("the answer is not an RPC reply: {0}")]
    Garbage(&'static str),
    /// A reply, and a refusal.
    #[error("the server refuses: {0}")]
    Refused(&'static str),
}

/// Calls the procedure that does nothing, of version 3 and, where the server has only that one, of version 4.
///
/// The caller brings the deadline. Dropping the future closes the connection.
pub async fn null_call(server: SocketAddr) -> Result<(), Fault> {
    let mut connection = TcpStream::connect(server).await.map_err(Fault::Connect)?;
    for (xid, version) in (1..).zip(VERSIONS) {
        connection.write_all(&call(xid, version)).await.map_err(Fault::Cut)?;
        match judge(&reply(&mut connection).await?, xid)? {
            Served::Yes => return Ok(()),
            Served::OtherVersion => {}
        }
    }
    Err(Fault::Refused("it has neither version 3 nor 4"))
}

/// Returns the call as one record.
fn call(xid: u32, version: u32) -> Vec<u8> {
    const CALL: u32 = 0;
    const RPC: u32 = 2;
    const NULL: u32 = 0;
    const NO_ONE: [u32; 2] = [0, 0];
    let words = [xid, CALL, RPC, PROGRAM, version, NULL];
    // The caller and its proof: AUTH_NONE.
    let words = words.into_iter().chain(NO_ONE).chain(NO_ONE);
    let body: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
    let mark = LAST | u32::try_from(body.len()).unwrap_or_default();
    [&mark.to_be_bytes()[..], &body].concat()
}

/// Reads one record, fragment by fragment.
async fn reply(connection: &mut TcpStream) -> Result<Vec<u8>, Fault> {
    let mut whole = Vec::new();
    // A fragment may be empty; their number has a bound as their bytes have.
    for _ in 0..REPLY {
        let mark = connection.read_u32().await.map_err(Fault::Cut)?;
        let size = usize::try_from(mark & !LAST).unwrap_or(usize::MAX);
        if size > REPLY - whole.len() {
            return Err(Fault::Garbage("it is too long"));
        }
        let start = whole.len();
        whole.resize(start + size, 0);
        connection.read_exact(&mut whole[start..]).await.map_err(Fault::Cut)?;
        if mark & LAST != 0 {
            return Ok(whole);
        }
    }
    Err(Fault::Garbage("it never ends"))
}

/// The content of a reply.
#[derive(Debug, PartialEq, Eq)]
enum Served {
    Yes,
    OtherVersion,
}

/// Reads the reply to the call of this number.
fn judge(reply: &[u8], xid: u32) -> Result<Served, Fault> {
    let mut words = Words(reply);
    if words.next()? != xid {
        return Err(Fault::Garbage("it is for another call"));
    }
    if words.next()? != 1 {
        return Err(Fault::Garbage("it is a call"));
    }
    match words.next()? {
        0 => {}
        1 => return Err(Fault::Refused("it denies the call")),
        _ => return Err(Fault::Garbage("it neither accepts nor denies the call")),
    }
    let _flavour = words.next()?;
    words.skip_opaque()?;
    match words.next()? {
        0 => Ok(Served::Yes),
        1 => Err(Fault::Refused("it has no NFS")),
        2 => Ok(Served::OtherVersion),
        3..=5 => Err(Fault::Refused("it cannot serve the call")),
        _ => Err(Fault::Garbage("its status is none")),
    }
}

/// The words of a message that are not read yet.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn next(&mut self) -> Result<u32, Fault> {
        let (word, rest) = self.0.split_first_chunk().ok_or(Fault::Garbage("it is too short"))?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*word))
    }

    /// Skips a length and as many bytes, up to the next whole word.
    fn skip_opaque(&mut self) -> Result<(), Fault> {
        let size = usize::try_from(self.next()?).unwrap_or(usize::MAX);
        let whole = size.checked_next_multiple_of(4).unwrap_or(usize::MAX);
        self.0 = self.0.get(whole..).ok_or(Fault::Garbage("it is too short"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
