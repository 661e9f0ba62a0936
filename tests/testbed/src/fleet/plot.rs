// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The runs as an SVG: one row per run, the start on the left and the day on the right, arrived
//! requests per second (filled) and answered ones (line).

use std::fmt::Write as _;

use super::series::STEP;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 150.0;
const LEFT: f64 = 60.0;
const ROW: f64 = 230.0;

/// One row.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its title.
    pub title: String,
    /// Requests per step that arrived.
    pub arrived: Vec<u64>,
    /// Requests per step that were answered.
    pub answered: Vec<u64>,
    /// How many steps the start took.
    pub start: usize,
    /// NAPI's capacity in requests per second.
    pub capacity: f64,
}

/// Draws all rows.
pub fn svg(title: &str, rows: &[Row]) -> String {
    let height = ROW * rows.len() as f64 + 50.0;
    let width = 2.0 * (WIDTH + LEFT) + 40.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\"          font-family=\"sans-serif\" font-size=\"11\">\n         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{}</text>\n",
        escaped(title)
    );
    for (n, row) in rows.iter().enumerate() {
        let top = 50.0 + ROW * n as f64;
        let start = row.start.min(row.arrived.len());
        panel(&mut out, row, 0..start, LEFT, top, "start");
        panel(&mut out, row, start..row.arrived.len(), 2.0 * LEFT + WIDTH + 20.0, top, "after it");
    }
    out.push_str("</svg>\n");
    out
}

fn panel(out: &mut String, row: &Row, steps: std::ops::Range<usize>, x: f64, y: f64, which: &str) {
    let cut = |all: &[u64]| all.get(steps.start..steps.end.min(all.len())).unwrap_or(&[]).to_vec();
    // At most so many points that a picture can show: the busiest of each group is kept.
    let group = (steps.len() / 800).max(1);
    let thin = |all: Vec<u64>| -> Vec<f64> {
        let groups = all.chunks(group);
        groups.map(|g| g.iter().max().copied().unwrap_or(0) as f64 / STEP as f64).collect()
    };
    let (arrived, answered) = (thin(cut(&row.arrived)), thin(cut(&row.answered)));
    let most = arrived.iter().chain(&answered).fold(0.1_f64, |most, value| most.max(*value));
    let points = arrived.len().max(2) as f64 - 1.0;
    let at = |n: usize, value: f64| {
        (x + WIDTH * n as f64 / points, y + 20.0 + HEIGHT * (1.0 - value / most))
    };
    let from = steps.start as f64 * STEP as f64;
    let until = steps.end as f64 * STEP as f64;
    // Writing to a string cannot fail.
    let mut put = |text: std::fmt::Arguments<'_>| {
        let _never = out.write_fmt(text);
    };
    put(format_args!(
        "<text x=\"{x}\" y=\"{}\">{}, {which}</text>\n",
        y + 10.0,
        escaped(&row.title)
    ));
    let (bottom, right) = (y + 20.0 + HEIGHT, x + WIDTH);
    put(format_args!("<path d=\"M{x},{bottom}"));
    for (n, value) in arrived.iter().enumerate() {
        let (px, py) = at(n, *value);
        put(format_args!(" L{px:.1},{py:.1}"));
    }
    put(format_args!(" L{right},{bottom} Z\" fill=\"#9ecae1\" stroke=\"none\"/>\n"));
    put(format_args!("<polyline fill=\"none\" stroke=\"#08519c\" points=\""));
    for (n, value) in answered.iter().enumerate() {
        let (px, py) = at(n, *value);
        put(format_args!("{px:.1},{py:.1} "));
    }
    put(format_args!("\"/>\n"));
    if row.capacity <= most {
        let (_, line) = at(0, row.capacity);
        put(format_args!(
            "<line x1=\"{x}\" x2=\"{right}\" y1=\"{line:.1}\" y2=\"{line:.1}\"              stroke=\"#cb181d\" stroke-dasharray=\"4\"/>\n"
        ));
    }
    put(format_args!(
        "<rect x=\"{x}\" y=\"{}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\"          stroke=\"#888\"/>\n         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{most:.1}/s</text>\n         <text x=\"{x}\" y=\"{}\">{}</text>\n         <text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{}</text>\n",
        y + 20.0,
        x - 4.0,
        y + 30.0,
        bottom + 14.0,
        clock(from),
        bottom + 14.0,
        clock(until),
    ));
}

fn clock(seconds: f64) -> String {
    if seconds < 7200.0 {
        format!("{:.0} s", seconds)
    } else {
        format!("{:.1} h", seconds / 3600.0)
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_two_panels_and_text_is_escaped() {
        let row = Row {
            title: "a < b".to_owned(),
            arrived: vec![10, 20, 5, 0, 1],
            answered: vec![10, 20, 5, 0, 1],
            start: 3,
            capacity: 1.0,
        };
        let svg = svg("x & y", &[row]);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains("a &lt; b") && svg.contains("x &amp; y") && svg.contains("2.0/s"));
        assert!(svg.contains("stroke-dasharray"), "the capacity is drawn where it fits");
    }
}
