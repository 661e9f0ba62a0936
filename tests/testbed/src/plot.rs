// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Series over time as an SVG: panels in two columns, each with its lines and the highest value.

use std::fmt::Write as _;

const WIDTH: f64 = 500.0;
const HEIGHT: f64 = 120.0;
const LEFT: f64 = 70.0;
const ROW: f64 = 180.0;
const COLOURS: [&str; 4] = ["#08519c", "#cb181d", "#238b45", "#6a51a3"];
/// More points than that no panel can show: of each group, the highest is kept.
const POINTS: usize = 800;

pub(crate) struct Panel<'a> {
    pub title: String,
    /// Each line's name and values, at even distances.
    pub lines: Vec<(&'a str, Vec<f64>)>,
    /// A value to compare with, drawn where it fits.
    pub level: Option<f64>,
    /// The highest value in words.
    pub most: fn(&str, f64) -> String,
    /// When it begins and ends, in words.
    pub times: (String, String),
}

/// Draws all panels, two in a row.
pub(crate) fn svg(title: &str, panels: &[Panel<'_>]) -> String {
    let height = ROW * panels.len().div_ceil(2) as f64 + 50.0;
    let width = 2.0 * (WIDTH + LEFT) + 30.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    label(&mut out, LEFT, 24.0, "font-size=\"15\"", title);
    for (n, panel) in panels.iter().enumerate() {
        let x = LEFT + (WIDTH + LEFT) * (n % 2) as f64;
        draw(&mut out, panel, x, 50.0 + ROW * (n / 2) as f64);
    }
    out.push_str("</svg>\n");
    out
}

fn draw(out: &mut String, panel: &Panel<'_>, x: f64, y: f64) {
    let values = panel.lines.iter().flat_map(|(_, values)| values);
    let most = values.fold(0.1_f64, |most, value| most.max(*value));
    let (top, bottom, right) = (y + 20.0, y + 20.0 + HEIGHT, x + WIDTH);
    let height = |value: f64| top + HEIGHT * (1.0 - value / most);
    label(out, x, y + 12.0, "", &panel.title);
    let mut named = right;
    for (nth, (name, values)) in panel.lines.iter().enumerate().rev() {
        let colour = COLOURS[nth % COLOURS.len()];
        let groups = values.chunks(values.len().div_ceil(POINTS).max(1));
        let thin: Vec<f64> = groups.map(|g| g.iter().copied().fold(0.0, f64::max)).collect();
        let step = WIDTH / (thin.len().max(2) as f64 - 1.0);
        let place =
            |(n, value): (usize, &f64)| format!("{:.1},{:.1}", x + step * n as f64, height(*value));
        let points: Vec<String> = thin.iter().enumerate().map(place).collect();
        let points = points.join(" ");
        // Writing to a string cannot fail.
        let _never =
            writeln!(out, "<polyline fill=\"none\" stroke=\"{colour}\" points=\"{points}\"/>");
        label(out, named, y + 12.0, &format!("text-anchor=\"end\" fill=\"{colour}\""), name);
        named -= 70.0;
    }
    if let Some(level) = panel.level.filter(|level| *level <= most) {
        let _never = writeln!(
            out,
            "<path d=\"M{x},{0:.1} H{right}\" stroke=\"black\" stroke-dasharray=\"4\"/>",
            height(level)
        );
    }
    let _never = writeln!(
        out,
        "<rect x=\"{x}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#888\"/>"
    );
    label(out, x - 4.0, top + 10.0, "text-anchor=\"end\"", &(panel.most)(&panel.title, most));
    label(out, x, bottom + 13.0, "", &panel.times.0);
    label(out, right, bottom + 13.0, "text-anchor=\"end\"", &panel.times.1);
}

fn label(out: &mut String, x: f64, y: f64, more: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _never = writeln!(out, "<text x=\"{x}\" y=\"{y}\" {more}>{text}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_is_a_line_and_text_is_escaped() {
        let panel = |title: &str, level| Panel {
            title: title.to_owned(),
            lines: vec![("a", vec![1.0, 2.0, 3.0]), ("b", vec![0.0; 2000])],
            level: Some(level),
            most: |_, value| format!("{value:.1}/s"),
            times: ("0 s".to_owned(), "9 s".to_owned()),
        };
        let svg = svg("x & y", &[panel("a < b", 1.0), panel("c", 4.0)]);
        assert_eq!(svg.matches("<polyline").count(), 4);
        assert_eq!(svg.matches("stroke=\"#888\"").count(), 2);
        assert_eq!(svg.matches("stroke-dasharray").count(), 1, "a level is drawn where it fits");
        for text in ["a &lt; b", "x &amp; y", "3.0/s", "9 s"] {
            assert!(svg.contains(text), "{text}");
        }
    }
}
