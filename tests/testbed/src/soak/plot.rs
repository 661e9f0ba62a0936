// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The series as an SVG: one panel per kind, one line per process.

use std::fmt::Write as _;

use super::judge::{Series, shown};

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 110.0;
const LEFT: f64 = 70.0;
const ROW: f64 = 165.0;
const COLOURS: [&str; 4] = ["#08519c", "#cb181d", "#238b45", "#6a51a3"];

/// Draws all series over so many seconds; those of the same kind share a panel.
pub fn svg(title: &str, series: &[Series], seconds: f64) -> String {
    let mut kinds: Vec<&str> = Vec::new();
    for one in series {
        if !kinds.contains(&one.what) {
            kinds.push(one.what);
        }
    }
    let height = ROW * kinds.len().div_ceil(2) as f64 + 50.0;
    let width = 2.0 * (WIDTH + LEFT) + 30.0;
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{title}</text>\n"
    );
    for (n, kind) in kinds.iter().enumerate() {
        let x = LEFT + (WIDTH + LEFT) * (n % 2) as f64;
        let y = 50.0 + ROW * (n / 2) as f64;
        let these: Vec<&Series> = series.iter().filter(|one| one.what == *kind).collect();
        panel(&mut out, kind, &these, (x, y), seconds);
    }
    out.push_str("</svg>\n");
    out
}

fn panel(out: &mut String, kind: &str, series: &[&Series], (x, y): (f64, f64), seconds: f64) {
    let most = series.iter().flat_map(|one| &one.values).fold(1.0_f64, |most, v| most.max(*v));
    let (top, bottom, right) = (y + 20.0, y + 20.0 + HEIGHT, x + WIDTH);
    // Writing to a string cannot fail.
    let mut put = |text: std::fmt::Arguments<'_>| {
        let _never = out.write_fmt(text);
    };
    put(format_args!("<text x=\"{x}\" y=\"{}\">{kind}</text>\n", y + 12.0));
    for (one, colour) in series.iter().zip(COLOURS.iter().cycle()) {
        let points = one.values.len().max(2) as f64 - 1.0;
        put(format_args!("<polyline fill=\"none\" stroke=\"{colour}\" points=\""));
        for (n, value) in one.values.iter().enumerate() {
            let px = x + WIDTH * n as f64 / points;
            put(format_args!("{px:.1},{:.1} ", top + HEIGHT * (1.0 - value / most)));
        }
        put(format_args!("\"/>\n"));
    }
    let mut at = x + 110.0;
    for (one, colour) in series.iter().zip(COLOURS.iter().cycle()) {
        put(format_args!(
            "<text x=\"{at}\" y=\"{}\" fill=\"{colour}\">{}</text>\n",
            y + 12.0,
            one.who
        ));
        at += 80.0;
    }
    put(format_args!(
        "<rect x=\"{x}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#888\"/>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
         <text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{seconds:.0} s</text>\n",
        x - 4.0,
        top + 10.0,
        shown(kind, most),
        bottom + 13.0,
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_is_a_line_and_every_kind_a_panel() {
        let one = |who, what| Series { who, what, values: vec![1.0, 2.0, 3.0], allowed: None };
        let svg = svg("a < b", &[one("a", "rss"), one("b", "rss"), one("a", "fds")], 9.0);
        assert_eq!(svg.matches("<polyline").count(), 3);
        assert_eq!(svg.matches("stroke=\"#888\"").count(), 2);
        assert!(svg.contains("a &lt; b") && svg.contains("9 s"));
    }
}
