// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One line of QMP, parsed as JSON. QEMU and, through it, the guest decide what a line contains, so its
//! length, its depth and its types are bounded; a line that cannot be parsed is an error to count.

use std::borrow::Cow;

use bytes::Bytes;
use sdc_clients::vminfod::{LineTooLong, Lines};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// A line without its end, or that one was too long.
pub type Line = Result<Bytes, LineTooLong>;

/// Longest line that is kept, in bytes; of a longer one only the fact remains.
const LINE_CAP: usize = 1 << 20;

/// Returns the splitter of what a monitor sends.
pub fn lines() -> Lines {
    Lines::new(LINE_CAP)
}

/// Longest string of a line that is kept, in bytes.
const WORD_CAP: usize = 128;

/// The one thing that is ever sent: the end of the negotiation (K3).
pub const NEGOTIATE: &[u8] = b"{\"execute\":\"qmp_capabilities\"}\n";

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The server greets: it has accepted the connection.
    Greeting {
        /// QEMU's version, `7.2.22`; absent where it is no triple of numbers.
        version: Option<String>,
    },
    /// A command succeeded; `status` is the run state, where that was asked.
    Return {
        /// `running`, `paused`, `postmigrate`, …
        status: Option<String>,
    },
    /// A command failed.
    Error {
        /// `CommandNotFound`, `GenericError`, …
        class: String,
    },
    /// Something happened.
    Event(Event),
    /// JSON of no known shape.
    Other,
}

/// An event, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub name: EventName,
    /// QEMU's wall clock in microseconds since 1970, for the record only.
    pub at_us: Option<i64>,
    /// Its data, as far as it matters here.
    pub data: EventData,
}

/// The events that decide something; all others are [`EventName::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventName {
    Shutdown,
    Powerdown,
    Reset,
    Stop,
    Resume,
    Suspend,
    SuspendDisk,
    Wakeup,
    Watchdog,
    GuestPanicked,
    GuestCrashloaded,
    Migration,
    Other,
}

impl EventName {
    fn of(word: &str) -> Self {
        match word {
            "SHUTDOWN" => Self::Shutdown,
            "POWERDOWN" => Self::Powerdown,
            "RESET" => Self::Reset,
            "STOP" => Self::Stop,
            "RESUME" => Self::Resume,
            "SUSPEND" => Self::Suspend,
            "SUSPEND_DISK" => Self::SuspendDisk,
            "WAKEUP" => Self::Wakeup,
            "WATCHDOG" => Self::Watchdog,
            "GUEST_PANICKED" => Self::GuestPanicked,
            "GUEST_CRASHLOADED" => Self::GuestCrashloaded,
            "MIGRATION" => Self::Migration,
            _ => Self::Other,
        }
    }
}

/// What the deciding events carry. A field of a wrong type counts as absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EventData {
    /// SHUTDOWN, RESET: whether the guest asked for it (QEMU 2.10).
    #[serde(deserialize_with = "lenient")]
    pub guest: Option<bool>,
    /// SHUTDOWN, RESET: the cause (QEMU 4.0).
    #[serde(deserialize_with = "word")]
    pub reason: Option<String>,
    /// WATCHDOG, GUEST_PANICKED: what QEMU does about it.
    #[serde(deserialize_with = "word")]
    pub action: Option<String>,
    /// MIGRATION: where it is.
    #[serde(deserialize_with = "word")]
    pub status: Option<String>,
}

/// A line that cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum BadLine {
    /// Longer than allowed.
    #[error(transparent)]
    TooLong(#[from] LineTooLong),
    /// Something else than an object; a list would do for serde.
    #[error("no object ({length} bytes)")]
    NoObject {
        /// The line's length.
        length: usize,
    },
    /// Not a JSON object of the protocol's shape.
    #[error("not a QMP object ({length} bytes)")]
    Json {
        /// The line's length.
        length: usize,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(rename = "QMP", default, borrow)]
    greeting: Option<&'a RawValue>,
    #[serde(default, borrow)]
    event: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    data: Option<&'a RawValue>,
    #[serde(default, borrow)]
    timestamp: Option<&'a RawValue>,
    #[serde(rename = "return", default, borrow)]
    returned: Option<&'a RawValue>,
    #[serde(default, borrow)]
    error: Option<&'a RawValue>,
}

/// Reads one line, without its end.
/// Fails if it is no JSON object of the protocol's shape.
pub fn parse_line(line: &[u8]) -> Result<Message, BadLine> {
    if line.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(BadLine::NoObject { length: line.len() });
    }
    let wire: Wire<'_> = serde_json::from_slice(line)
        .map_err(|source| BadLine::Json { length: line.len(), source })?;
    Ok(if let Some(word) = wire.event {
        Message::Event(Event {
            name: EventName::of(&word),
            at_us: wire.timestamp.and_then(micros),
            data: read(wire.data),
        })
    } else if let Some(greeting) = wire.greeting {
        Message::Greeting { version: version(greeting) }
    } else if let Some(error) = wire.error {
        Message::Error { class: read::<Failure>(Some(error)).class.unwrap_or_default() }
    } else if let Some(returned) = wire.returned {
        Message::Return { status: read::<EventData>(Some(returned)).status }
    } else {
        Message::Other
    })
}

/// Returns true if the line contains the word in double quotes. This is the shipped daemon's whole parser,
/// used for its rule only: a guest that gets the word into a string of its own deceives it (R7).
pub fn holds_quoted(line: &[u8], word: &str) -> bool {
    let quoted = format!("\"{word}\"");
    line.windows(quoted.len()).any(|part| part == quoted.as_bytes())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Failure {
    #[serde(deserialize_with = "word")]
    class: Option<String>,
}

/// A part whose wrong shape is no reason to lose the rest.
fn read<'a, T: Default + Deserialize<'a>>(part: Option<&'a RawValue>) -> T {
    part.filter(|part| part.get().starts_with('{'))
        .and_then(|part| serde_json::from_str(part.get()).ok())
        .unwrap_or_default()
}

fn micros(part: &RawValue) -> Option<i64> {
    #[derive(Deserialize)]
    struct Stamp {
        seconds: i64,
        microseconds: i64,
    }
    let stamp: Stamp = serde_json::from_str(part.get()).ok()?;
    stamp.seconds.checked_mul(1_000_000)?.checked_add(stamp.microseconds)
}

fn version(part: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Greeting {
        version: Version,
    }
    #[derive(Deserialize)]
    struct Version {
        qemu: Triple,
    }
    #[derive(Deserialize)]
    struct Triple {
        major: u32,
        minor: u32,
        micro: u32,
    }
    let qemu = serde_json::from_str::<Greeting>(part.get()).ok()?.version.qemu;
    Some(format!("{}.{}.{}", qemu.major, qemu.minor, qemu.micro))
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OrElse<T> {
    Wanted(T),
    Other(serde::de::IgnoredAny),
}

fn lenient<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(match OrElse::deserialize(deserializer)? {
        OrElse::Wanted(value) => Some(value),
        OrElse::Other(_) => None,
    })
}

/// Reads a string of bounded length; longer ones decide nothing.
fn word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(lenient::<D, String>(deserializer)?.filter(|word| word.len() <= WORD_CAP))
}

/// The process at the other end, from the kernel. With its start time it is not taken for a later process
/// with the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The process.
    pub pid: i32,
    /// When it started, in clock ticks since boot; `None` where the system does not tell.
    pub start: Option<u64>,
}

#[cfg(test)]
mod tests;
