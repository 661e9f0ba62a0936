// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Decides whether a series grows: it compares the medians of the second and the last quarter, with
//! an allowance per kind.

/// A mebibyte in bytes.
pub(super) const MIB: f64 = 1_048_576.0;

/// How much more the last quarter may have than the second.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// Share of the second quarter's median.
    pub share: f64,
    /// And so much in any case.
    pub more: f64,
}

/// A series over time.
#[derive(Clone, Debug)]
pub struct Series {
    /// Whose: `vminfod`, ….
    pub who: &'static str,
    /// What: `rss`, ….
    pub what: &'static str,
    /// The values, at even distances.
    pub values: Vec<f64>,
    /// `None`: shown, not judged.
    pub allowed: Option<Allowance>,
}

/// A value as people read it.
pub(super) fn shown(what: &str, value: f64) -> String {
    match what {
        "memory" | "ring" => format!("{:.1} MiB", value / MIB),
        _ => format!("{value:.0}"),
    }
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Median of the second quarter.
    pub second: f64,
    /// Median of the last.
    pub last: f64,
    /// The highest value of all.
    pub most: f64,
    /// What the last median may be at most.
    pub limit: Option<f64>,
}

impl Verdict {
    /// Returns true if it grew beyond its limit.
    pub fn grew(&self) -> bool {
        self.limit.is_some_and(|limit| self.last > limit)
    }
}

impl Series {
    /// Judges it; `None` with fewer than eight values, which have no quarters worth comparing.
    pub fn judge(&self) -> Option<Verdict> {
        let (all, quarter) = (&self.values, self.values.len() / 4);
        if quarter < 2 {
            return None;
        }
        let second = median(all.get(quarter..2 * quarter)?);
        let last = median(all.get(all.len() - quarter..)?);
        let limit = self.allowed.map(|allowed| second * (1.0 + allowed.share) + allowed.more);
        Some(Verdict { second, last, most: all.iter().copied().fold(0.0, f64::max), limit })
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(values: Vec<f64>) -> Option<Verdict> {
        let allowed = Some(Allowance { share: 0.05, more: 2.0 });
        Series { who: "x", what: "fds", values, allowed }.judge()
    }

    #[test]
    fn a_slow_leak_is_growth_and_a_start_a_peak_and_noise_are_not() {
        let leak = judged((0..200).map(|n| 100.0 + f64::from(n) * 0.1).collect()).unwrap();
        assert!(leak.grew(), "{leak:?}");
        let start = judged((0..200).map(|n| f64::from(n.min(40))).collect()).unwrap();
        assert!(!start.grew() && start.second == 40.0, "{start:?}");
        let peak = (0..200).map(|n| if n % 10 == 9 { 900.0 } else { 40.0 }).collect();
        let peak = judged(peak).unwrap();
        assert!(!peak.grew() && peak.most == 900.0, "{peak:?}");
        let noise = judged((0..200).map(|n| 40.0 + f64::from(n % 4)).collect()).unwrap();
        assert!(!noise.grew(), "{noise:?}");
    }

    #[test]
    fn too_few_values_are_not_judged_and_some_are_only_shown() {
        assert!(judged(vec![1.0; 7]).is_none());
        let values = (0..100).map(f64::from).collect();
        let shown = Series { who: "x", what: "events", values, allowed: None };
        assert!(!shown.judge().unwrap().grew());
    }
}
