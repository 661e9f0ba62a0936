// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Logs as bunyan lines, which Triton's tools read: one JSON object per line with
//! `name`, `hostname`, `pid`, `level` (10 trace … 50 error), `msg`, `time`, `v`, then the
//! event's own fields and those of the spans around it. On a full disk lines are lost, and the program
//! goes on.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write;

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// The target of lines that are written at any level: what a program changed elsewhere.
pub const AUDIT: &str = "audit";

/// Bytes of a text in one field of a line: peers write some of them.
const LONGEST: usize = 4096;

/// Starts logging to stdout for the whole process; later calls change nothing.
///
/// `level` is a tracing filter (`info`, `debug`, `vminfod::sources=trace,info`); the environment's
/// `LOG_LEVEL` wins. An unreadable filter counts as `info`. No filter but one that names it hides
/// the target [`AUDIT`].
pub fn init(name: &'static str, level: &str) {
    let wanted = std::env::var("LOG_LEVEL").unwrap_or_else(|_| level.to_owned());
    let filter = filter(&wanted);
    let layer = Bunyan::new(name, std::io::stdout);
    let _already_set = tracing_subscriber::registry().with(layer.with_filter(filter)).try_init();
}

/// Returns the filter, which passes audit lines unless it names them.
fn filter(wanted: &str) -> EnvFilter {
    let audit = format!("{AUDIT}=info,{wanted}");
    EnvFilter::try_new(audit).unwrap_or_else(|_| EnvFilter::new("info"))
}

/// Returns at most the first 1,024 bytes of a text, which may be a peer's.
pub fn clip(text: &str) -> String {
    clipped(text, 1024)
}

/// Returns at most `bytes` of a text, cut at a character, with `…` where something is missing.
fn clipped(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let end = (0..=bytes).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", text.get(..end).unwrap_or_default())
}

/// Returns an error with all its causes, joined by `: `.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            let _infallible = write!(text, ": {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// The layer that writes the lines; `make` gives a writer for each of them.
#[derive(Debug)]
pub struct Bunyan<M> {
    name: &'static str,
    hostname: String,
    pid: u32,
    make: M,
}

impl<M, W> Bunyan<M>
where
    M: Fn() -> W,
    W: Write,
{
    /// Makes a layer for the program `name`.
    pub fn new(name: &'static str, make: M) -> Self {
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self { name, hostname, pid: std::process::id(), make }
    }
}

impl<S, M, W> Layer<S> for Bunyan<M>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    M: Fn() -> W + 'static,
    W: Write + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut line = Map::new();
        line.insert("name".into(), json!(self.name));
        line.insert("hostname".into(), json!(self.hostname));
        line.insert("pid".into(), json!(self.pid));
        line.insert("level".into(), json!(number(event.metadata().level())));
        line.insert("component".into(), json!(event.metadata().target()));
        line.insert("msg".into(), json!(fields.message));
        line.insert("time".into(), json!(format!("{:.3}", crate::wall::now())));
        line.insert("v".into(), json!(0));
        for (key, value) in fields.others {
            line.entry(key).or_insert(value);
        }
        // The fields of the spans around it, the innermost first.
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(fields) = span.extensions().get::<Fields>() {
                for (key, value) in &fields.others {
                    line.entry(key).or_insert_with(|| value.clone());
                }
            }
        }
        let mut text = Value::Object(line).to_string();
        text.push('\n');
        // A log that cannot be written must not stop the program.
        let _lost = (self.make)().write_all(text.as_bytes());
    }
}

fn number(level: &Level) -> u8 {
    match *level {
        Level::TRACE => 10,
        Level::DEBUG => 20,
        Level::INFO => 30,
        Level::WARN => 40,
        Level::ERROR => 50,
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        let value = match value {
            Value::String(text) => Value::String(clipped(&text, LONGEST)),
            other => other,
        };
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => {
                self.others.insert(name.to_owned(), value);
            }
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.put(field, Value::String(format!("{value:?}")));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, Value::String(value.to_owned()));
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, json!(value));
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, json!(value));
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, json!(value));
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, json!(value));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_has_bunyans_fields() {
        let sink = Sink::default();
        let maker = sink.clone();
        let subscriber =
            tracing_subscriber::registry().with(Bunyan::new("test", move || maker.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let _outer = tracing::info_span!("outer", vm = "outer", pass = 3).entered();
            let _inner = tracing::info_span!("inner", vm = "inner", nic = "n").entered();
            tracing::warn!(vm = "abc", seq = 7_u64, "line\nbreak");
        });
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches('\n').count(), 1, "one line: {text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["v"], 0);
        assert_eq!(line["level"], 40);
        assert_eq!(line["name"], "test");
        assert_eq!(line["msg"], "line\nbreak");
        assert_eq!((&line["vm"], &line["seq"]), (&json!("abc"), &json!(7)));
        assert_eq!((&line["nic"], &line["pass"]), (&json!("n"), &json!(3)), "of its spans");
        assert!(line["hostname"].is_string() && line["pid"].is_u64());
        let time = line["time"].as_str().unwrap();
        assert!(time.ends_with('Z') && time.len() == 24, "{time}");
    }

    #[test]
    fn texts_of_peers_are_cut() {
        let sink = Sink::default();
        let maker = sink.clone();
        let layer = Bunyan::new("test", move || maker.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let long = "\u{fc}".repeat(100_000);
            tracing::warn!(reason = long, shown = %long, "{long}");
        });
        assert!(sink.0.lock().unwrap().len() < 16_384);
        assert_eq!(clip("short"), "short");
        assert_eq!(clip(&"\u{fc}".repeat(600)).len(), 1024 + "…".len());
    }

    #[test]
    fn audit_lines_are_written_at_any_level() {
        for (wanted, lines) in
            [("warn", 1), ("off", 1), ("debug", 2), ("nonsense=[", 2), ("audit=off", 0)]
        {
            let sink = Sink::default();
            let maker = sink.clone();
            let layer = Bunyan::new("test", move || maker.clone()).with_filter(filter(wanted));
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
                tracing::info!("usual");
                tracing::info!(target: AUDIT, audit = true, "write");
            });
            let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
            assert_eq!(text.lines().count(), lines, "{wanted}: {text}");
            assert_eq!(text.contains("\"component\":\"audit\""), lines > 0, "{wanted}: {text}");
        }
    }

    #[test]
    fn a_chain_names_every_cause_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] std::io::Error);
        assert_eq!(chain(&Outer(std::io::Error::other("inner"))), "outer: inner");
    }
}
