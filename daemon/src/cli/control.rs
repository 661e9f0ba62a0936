// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The client of the agent's unix socket: one request per connection. It speaks HTTP 1.0, so that
//! the body ends with the connection and needs no decoding.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// For an offer of many records, which the agent reads within its budget.
const PATIENCE: Duration = Duration::from_secs(600);
/// The longest answer.
const CAP: u64 = 64 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nothing listens.
    #[error("nothing answers on {}: {source}", path.display())]
    Absent {
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The exchange failed.
    #[error("cannot use the agent's socket: {0}")]
    Broken(String),
    /// Something else listens there.
    #[error("another program answers on {}", path.display())]
    Another { path: std::path::PathBuf },
    /// The agent refused.
    #[error("{0}")]
    Refused(String),
}

/// Sends a request to the agent and returns its answer, which always has the field `mark`: without it, another program
/// answers.
pub async fn ask(
    socket: &Path,
    method: &str,
    target: &str,
    body: Option<&Value>,
    mark: &str,
) -> Result<Value, ControlError> {
    let absent = |source| ControlError::Absent { path: socket.to_owned(), source };
    let mut stream = UnixStream::connect(socket).await.map_err(absent)?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "{method} {target} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    let exchange = async {
        stream.write_all(format!("{head}{body}").as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(CAP).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = match tokio::time::timeout(PATIENCE, exchange).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(err)) => return Err(ControlError::Broken(err.to_string())),
        Err(_) => {
            return Err(ControlError::Broken(format!("no answer in {} s", PATIENCE.as_secs())));
        }
    };
    match read(&answer)? {
        answer if answer.get(mark).is_some() => Ok(answer),
        _ => Err(ControlError::Another { path: socket.to_owned() }),
    }
}

fn read(answer: &[u8]) -> Result<Value, ControlError> {
    let broken = |what: &str| ControlError::Broken(what.to_owned());
    let text = std::str::from_utf8(answer).map_err(|_| broken("the answer is no text"))?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| broken("the answer is cut"))?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
    let status = status.ok_or_else(|| broken("the answer has no status"))?;
    let value: Value = serde_json::from_str(body).map_err(|err| broken(&err.to_string()))?;
    if (200..300).contains(&status) {
        return Ok(value);
    }
    let why = value.get("message").and_then(Value::as_str).unwrap_or("refused");
    Err(ControlError::Refused(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_answers_and_refusals() {
        let good = b"HTTP/1.0 200 OK\r\nA: b\r\n\r\n{\"nics\":2}";
        assert_eq!(read(good).unwrap()["nics"], 2);
        let bad = b"HTTP/1.0 404 Not Found\r\n\r\n{\"code\":\"x\",\"message\":\"no such plan\"}";
        assert_eq!(read(bad).unwrap_err().to_string(), "no such plan");
        for cut in 0..good.len() {
            assert!(read(&good[..cut]).is_err(), "{cut}");
        }
    }
}
