// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The results: rows with a value, its limit, their ratio, and the highest ratio allowed.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

/// How a value and its limit are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Seconds, shown in whichever of µs, ms and s fits.
    Time,
    /// Bytes.
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
    /// Better than the target by as much as one may hope for.
    Beyond,
    /// At its target.
    Pass,
    /// Not at its target.
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
    target: f64,
    beyond: Option<f64>,
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
            target: f64::NAN,
            beyond: None,
            verdict: Verdict::Pass,
            note: String::new(),
        }
    }

    /// A row that could not be measured here.
    pub(super) fn skipped(metric: impl Into<String>, why: impl Into<String>) -> Self {
        let mut row = Row::new(metric, Unit::Count, &Samples::of([0.0]));
        row.verdict = Verdict::Skipped(why.into());
        row
    }

    /// A group that broke.
    pub(super) fn failed(metric: impl Into<String>, why: impl Into<String>) -> Self {
        let mut row = Row::new(metric, Unit::Count, &Samples::default());
        row.verdict = Verdict::Fail;
        row.note(why)
    }

    /// Compares: the value may be `target` limits, or `beyond` of them to be more than good.
    pub(super) fn against(
        self,
        limit_is: &'static str,
        limit: f64,
        target: f64,
        beyond: impl Into<Option<f64>>,
    ) -> Self {
        let value = self.value;
        self.of(value, limit_is, limit, target, beyond)
    }

    /// The same where only a part of the value is to be compared.
    pub(super) fn of(
        mut self,
        part: f64,
        limit_is: &'static str,
        limit: f64,
        target: f64,
        beyond: impl Into<Option<f64>>,
    ) -> Self {
        self.limit = limit;
        self.limit_is = limit_is;
        self.ratio = part / limit.max(f64::MIN_POSITIVE);
        self.target = target;
        self.beyond = beyond.into();
        self.verdict = if self.beyond.is_some_and(|beyond| self.ratio <= beyond) {
            Verdict::Beyond
        } else if self.ratio <= target {
            Verdict::Pass
        } else {
            Verdict::Fail
        };
        self
    }

    /// Something to say below the table.
    pub(super) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    fn json(&self) -> Value {
        let number = |n: f64| serde_json::Number::from_f64(n).map_or(Value::Null, Value::Number);
        let (verdict, why) = match &self.verdict {
            Verdict::Beyond => ("beyond", None),
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
            "target": number(self.target), "beyond": self.beyond, "result": verdict,
            "why": why, "note": self.note,
        })
    }
}

/// All rows for machines.
pub(super) fn json(rows: &[Row]) -> Value {
    rows.iter().map(Row::json).collect()
}

/// All rows for people.
pub(super) fn text(rows: &[Row]) -> String {
    let head =
        ["metric", "value", "spread", "limit", "which is", "ratio", "target", "beyond", "result"];
    let mut lines: Vec<[String; 9]> = vec![head.map(str::to_owned)];
    for row in rows {
        let at_most = |n: f64| if n.is_nan() { String::new() } else { format!("{n:.2}") };
        let mut line = [const { String::new() }; 9];
        line[0] = row.metric.clone();
        line[8] = match &row.verdict {
            Verdict::Beyond => "beyond".to_owned(),
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
            line[6] = at_most(row.target);
            line[7] = row.beyond.map(at_most).unwrap_or_default();
        }
        lines.push(line);
    }
    let mut widths = [0; 9];
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

/// Measurements of one thing.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(Vec<f64>);

impl Samples {
    /// Of these.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        values.into_iter().collect()
    }

    /// One more.
    pub(super) fn push(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64());
    }

    /// One more that is no time.
    pub(super) fn push_value(&mut self, value: f64) {
        self.0.push(value);
    }

    /// All of them, as they came.
    pub(super) fn values(&self) -> impl Iterator<Item = f64> {
        self.0.iter().copied()
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
        let judged = |value| row(value).against("x", 1.0, 1.5, 1.1).verdict;
        assert_eq!(judged(1.0), Verdict::Beyond);
        assert_eq!(judged(1.4), Verdict::Pass);
        assert_eq!(judged(1.6), Verdict::Fail);
        assert_eq!(row(5.0).of(1.0, "x", 1.0, 1.0, None).verdict, Verdict::Pass);
        let table = text(&[row(1.6).against("x", 1.0, 1.5, 1.1), Row::skipped("n", "no")]);
        assert!(table.contains("FAIL") && table.contains("skipped: no"), "{table}");
        assert_eq!(json(&[row(1.0).against("x", 1.0, 1.5, None)])[0]["result"], "pass");
    }

    #[test]
    fn quantiles() {
        let samples: Samples = (0..=100).map(f64::from).collect();
        assert_eq!((samples.median(), samples.quantile(0.99)), (50.0, 99.0));
        assert_eq!(samples.spread(), (0.0, 100.0));
    }
}
