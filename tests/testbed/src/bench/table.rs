// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The results: rows with a value, its limit, their ratio, and the bar: the highest ratio allowed.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

/// How a value and its limit are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Seconds, shown in whichever of µs, ms and s fits.
    Time,
    Bytes,
    /// A number of things.
    Count,
    /// Hundredths of a core.
    Percent,
}

impl Unit {
    fn text(self, value: f64) -> String {
        let scaled = |steps: &[(&str, f64)]| {
            let (name, size) =
                steps.iter().find(|(_, size)| value.abs() >= *size).or(steps.last()).copied()?;
            Some(format!("{:.3} {name}", value / size))
        };
        match self {
            Unit::Time => scaled(&[("s", 1.0), ("ms", 1e-3), ("us", 1e-6)]),
            Unit::Bytes => scaled(&[("MB", 1e6), ("kB", 1e3), ("B", 1.0)]),
            Unit::Count => Some(format!("{value:.2}").trim_end_matches(".00").to_owned()),
            Unit::Percent => Some(format!("{value:.3} %")),
        }
        .unwrap_or_default()
    }
}

/// How a row came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Within its bar.
    Pass,
    /// Not within its bar.
    Fail,
    /// Not measured, and why.
    Skipped(String),
}

/// One row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub metric: String,
    unit: Unit,
    value: f64,
    spread: (f64, f64),
    limit: f64,
    limit_is: &'static str,
    ratio: f64,
    bar: f64,
    group: &'static str,
    pub verdict: Verdict,
    note: String,
}

impl Row {
    /// A median with its spread, against a limit measured in the same run.
    pub(super) fn new(metric: impl Into<String>, unit: Unit, value: &Samples) -> Self {
        Row {
            metric: metric.into(),
            unit,
            value: value.median(),
            spread: value.spread(),
            limit: f64::NAN,
            limit_is: "",
            ratio: f64::NAN,
            bar: f64::NAN,
            group: "",
            verdict: Verdict::Pass,
            note: String::new(),
        }
    }

    /// A single value, against a limit measured in the same run.
    pub(super) fn one(metric: impl Into<String>, unit: Unit, value: f64) -> Self {
        Row::new(metric, unit, &Samples::of([value]))
    }

    /// A row that could not be measured here.
    pub(super) fn skipped(metric: impl Into<String>, why: impl Into<String>) -> Self {
        let mut row = Row::one(metric, Unit::Count, 0.0);
        row.verdict = Verdict::Skipped(why.into());
        row
    }

    /// A group that broke.
    pub(super) fn failed(metric: impl Into<String>, why: impl Into<String>) -> Self {
        let mut row = Row::new(metric, Unit::Count, &Samples::default());
        row.verdict = Verdict::Fail;
        row.note(why)
    }

    /// Compares the value with a limit; `bar` is the highest ratio allowed.
    pub(super) fn against(self, limit_is: &'static str, limit: f64, bar: f64) -> Self {
        let value = self.value;
        self.of(value, limit_is, limit, bar)
    }

    /// Compares a part of the value with a limit.
    pub(super) fn of(mut self, part: f64, limit_is: &'static str, limit: f64, bar: f64) -> Self {
        self.limit = limit;
        self.limit_is = limit_is;
        self.ratio = part / limit.max(f64::MIN_POSITIVE);
        self.bar = bar;
        self.verdict = if self.ratio <= bar { Verdict::Pass } else { Verdict::Fail };
        self
    }

    /// The group that measures it.
    pub(super) fn in_group(self, group: &'static str) -> Self {
        Row { group, ..self }
    }

    /// Something to say below the table.
    pub(super) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    fn json(&self) -> Value {
        let number = |n: f64| serde_json::Number::from_f64(n).map_or(Value::Null, Value::Number);
        let (verdict, why) = match &self.verdict {
            Verdict::Pass => ("pass", None),
            Verdict::Fail => ("fail", None),
            Verdict::Skipped(why) => ("skipped", Some(why.as_str())),
        };
        let unit = match self.unit {
            Unit::Time => "s",
            Unit::Bytes => "B",
            Unit::Count => "",
            Unit::Percent => "%",
        };
        json!({
            "metric": self.metric, "unit": unit, "value": number(self.value),
            "least": number(self.spread.0), "most": number(self.spread.1),
            "limit": number(self.limit), "limit_is": self.limit_is, "ratio": number(self.ratio),
            "bar": number(self.bar), "result": verdict, "why": why, "note": self.note,
        })
    }
}

/// All rows for machines.
pub(super) fn json(rows: &[Row]) -> Value {
    rows.iter().map(Row::json).collect()
}

/// All rows for people.
pub(super) fn text(rows: &[Row]) -> String {
    let head = ["metric", "value", "spread", "limit", "which is", "ratio", "bar", "result"];
    let mut lines: Vec<[String; 8]> = vec![head.map(str::to_owned)];
    for row in rows {
        let at_most = |n: f64| if n.is_nan() { String::new() } else { format!("{n:.2}") };
        let mut line = [const { String::new() }; 8];
        line[0] = row.metric.clone();
        line[7] = match &row.verdict {
            Verdict::Pass => "pass".to_owned(),
            Verdict::Fail => "FAIL".to_owned(),
            Verdict::Skipped(why) => format!("skipped: {why}"),
        };
        if !matches!(row.verdict, Verdict::Skipped(_)) {
            line[1] = row.unit.text(row.value);
            line[2] = format!("{} - {}", row.unit.text(row.spread.0), row.unit.text(row.spread.1));
            line[3] = row.unit.text(row.limit);
            line[4] = row.limit_is.to_owned();
            line[5] = at_most(row.ratio);
            line[6] = at_most(row.bar);
        }
        lines.push(line);
    }
    let mut widths = [0; 8];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for line in &lines {
        let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        let _in_memory = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    for row in rows.iter().filter(|row| !row.note.is_empty()) {
        let _in_memory = writeln!(out, "  {}: {}", row.metric, row.note);
    }
    out
}

/// All rows as the table of PERFORMANCE.md.
pub(super) fn markdown(rows: &[Row]) -> String {
    let mut out = String::from(
        "| what | measured (least to most) | limit, in the same run | ratio | bar | group |\n\
         | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        let (least, most) = row.spread;
        let (value, ratio) = match &row.verdict {
            Verdict::Skipped(why) => (format!("not measured: {why}"), String::new()),
            verdict => {
                let texts = [row.value, least, most].map(|value| row.unit.text(value));
                let missed = if *verdict == Verdict::Fail { " (missed)" } else { "" };
                let [value, least, most] = texts;
                (format!("{value} ({least} to {most})"), format!("{:.2}{missed}", row.ratio))
            }
        };
        let limit = if row.limit.is_nan() { String::new() } else { row.unit.text(row.limit) };
        let (metric, is, bar, group) = (&row.metric, row.limit_is, row.bar, row.group);
        let line = format!("| {metric} | {value} | {is}: {limit} | {ratio} | {bar} | `{group}` |");
        let _in_memory = writeln!(out, "{line}");
    }
    out
}

/// Measurements of one thing.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(Vec<f64>);

impl Samples {
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        values.into_iter().collect()
    }

    pub(super) fn push(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64());
    }

    /// One more that is no time.
    pub(super) fn push_value(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The value below which this share of them is.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
        sorted.get(at).copied().unwrap_or(f64::NAN)
    }

    /// The middle one.
    pub(super) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Least and most.
    pub(super) fn spread(&self) -> (f64, f64) {
        (self.quantile(0.0), self.quantile(1.0))
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<T: IntoIterator<Item = f64>>(iter: T) -> Self {
        Samples(iter.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_judged_by_its_ratio() {
        let row = |value: f64| Row::new("m", Unit::Time, &Samples::of([value, 9.0, 0.0]));
        let judged = |value| row(value).against("x", 1.0, 1.5).verdict;
        assert_eq!((judged(1.4), judged(1.6)), (Verdict::Pass, Verdict::Fail));
        assert_eq!(row(5.0).of(1.0, "x", 1.0, 1.0).verdict, Verdict::Pass);
        let rows = [row(1.6).against("x", 1.0, 1.5).in_group("g"), Row::skipped("n", "no")];
        let table = text(&rows);
        assert!(table.contains("FAIL") && table.contains("skipped: no"), "{table}");
        let table = markdown(&rows);
        let line = "| m | 1.600 s (0.000 us to 9.000 s) | x: 1.000 s | 1.60 (missed) | 1.5 | `g` |";
        assert!(table.contains(line) && table.contains("not measured: no"), "{table}");
        assert_eq!(json(&[row(1.0).against("x", 1.0, 1.5)])[0]["result"], "pass");
    }

    #[test]
    fn quantiles() {
        let samples: Samples = (0..=100).map(f64::from).collect();
        assert_eq!((samples.median(), samples.quantile(0.99)), (50.0, 99.0));
        assert_eq!(samples.spread(), (0.0, 100.0));
    }
}
