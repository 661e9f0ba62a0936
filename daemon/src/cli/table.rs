// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Small tables: aligned, parsable or JSON, some columns only, sorted. Pure.

use sdc_clients::quoted;
use serde_json::{Map, Value};

use super::screen::{Screen, Tone, visible};

/// How a list is printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// No header line.
    pub no_header: bool,
    /// Colons between values, no padding, no header; `:` and `\` in values get a `\`.
    pub parsable: bool,
    /// Columns, separated by commas; none: all.
    pub columns: Option<String>,
    /// Columns to sort by, separated by commas; `-COLUMN` for descending.
    pub sort: Option<String>,
    /// JSON: one object for each row.
    pub json: bool,
    /// Columns into which a table for people has to fit, as one with its usual columns on a terminal has to anyway: long
    /// names and a long last cell are shortened.
    pub within: Option<usize>,
}

/// Columns of a terminal.
pub const TERMINAL: usize = 80;

impl Layout {
    /// Returns true if the flags ask for a table.
    pub fn asks_for_table(&self) -> bool {
        self.no_header || self.parsable || self.columns.is_some() || self.sort.is_some()
    }

    /// Checks, for a command that does something before it prints its table, that the table has the columns that are
    /// asked for.
    pub fn check(&self, columns: &[&'static str]) -> Result<(), UnknownColumn> {
        Table::new(columns).print(self, Screen::default()).map(drop)
    }
}

/// The name is not a column's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no column {}: there are {known}", quoted(name))]
pub struct UnknownColumn {
    name: String,
    known: String,
}

/// Characters of a name that fit a table of 80 columns.
const NAME: usize = 24;

/// A cell: its value and its tone.
#[derive(Debug, Clone)]
pub struct Cell {
    value: Value,
    /// Its text, if that differs from the value's own.
    shown: Option<String>,
    tone: Option<Tone>,
    /// A long one is shortened where the table has to fit a terminal.
    is_name: bool,
}

impl<T: Into<Value>> From<T> for Cell {
    fn from(value: T) -> Cell {
        Cell { value: value.into(), shown: None, tone: None, is_name: false }
    }
}

impl Cell {
    /// Makes a cell with a colour.
    pub fn toned(value: impl Into<Value>, tone: Tone) -> Cell {
        Cell { tone: Some(tone), ..Cell::from(value) }
    }

    /// Makes a cell that is shown as `text`, and is `value` in JSON and for sorting.
    pub fn shown(value: impl Into<Value>, text: impl Into<String>) -> Cell {
        Cell { shown: Some(text.into()), ..Cell::from(value) }
    }

    /// Makes a cell with a name: a long one has `…` in its middle where the table has to fit a terminal.
    pub fn name(value: impl Into<Value>) -> Cell {
        Cell { is_name: true, ..Cell::from(value) }
    }

    fn aligned(&self, within: Option<usize>) -> String {
        let text = self.text();
        let (length, most) = (text.chars().count(), NAME);
        if !self.is_name || within.is_none() || length <= most {
            return text;
        }
        let (begin, end) = (most / 2, most - most / 2 - 1);
        let begin: String = text.chars().take(begin).collect();
        let end: String = text.chars().skip(length - end).collect();
        format!("{begin}…{end}")
    }

    fn text(&self) -> String {
        self.shown.as_deref().map_or_else(|| plain(&self.value), visible)
    }

    fn parsable(&self) -> String {
        match &self.value {
            Value::Null => String::new(),
            _ => self.text().replace('\\', "\\\\").replace(':', "\\:"),
        }
    }
}

/// Rows under named columns.
#[derive(Debug)]
pub struct Table {
    columns: Vec<&'static str>,
    /// How many columns are printed by default.
    usual: usize,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Makes an empty table.
    pub fn new(columns: &[&'static str]) -> Table {
        Table { columns: columns.to_vec(), usual: columns.len(), rows: Vec::new() }
    }

    /// Prints only the first columns by default.
    pub fn usually(self, columns: usize) -> Table {
        Table { usual: columns, ..self }
    }

    /// Adds a row, one cell per column.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Returns the text in a layout.
    pub fn print(mut self, layout: &Layout, screen: Screen) -> Result<String, UnknownColumn> {
        for key in layout.sort.iter().flat_map(|keys| keys.rsplit(',')) {
            let (name, descending) = match key.strip_prefix('-') {
                Some(name) => (name, true),
                None => (key, false),
            };
            let at = self.place(name)?;
            // Sorts are stable: the first key is sorted last.
            self.rows.sort_by(|a, b| {
                let order = order(a.get(at), b.get(at));
                if descending { order.reverse() } else { order }
            });
        }
        let places = match &layout.columns {
            Some(names) => {
                names.split(',').map(|name| self.place(name)).collect::<Result<Vec<_>, _>>()?
            }
            None => (0..self.usual).collect(),
        };
        Ok(if layout.json {
            self.json(&places)
        } else if layout.parsable {
            self.parsable(&places)
        } else {
            self.aligned(&places, layout, screen)
        })
    }

    fn place(&self, name: &str) -> Result<usize, UnknownColumn> {
        let at = self.columns.iter().position(|column| *column == name);
        at.ok_or_else(|| UnknownColumn { name: name.to_owned(), known: self.columns.join(", ") })
    }

    fn json(&self, places: &[usize]) -> String {
        let object = |row: &Vec<Cell>| -> Value {
            let pair = |at: &usize| {
                Some(((*self.columns.get(*at)?).to_owned(), row.get(*at)?.value.clone()))
            };
            Value::Object(places.iter().filter_map(pair).collect::<Map<_, _>>())
        };
        let rows: Vec<Value> = self.rows.iter().map(object).collect();
        format!("{:#}\n", Value::Array(rows))
    }

    fn parsable(&self, places: &[usize]) -> String {
        let line = |row: &Vec<Cell>| {
            let cells: Vec<String> =
                places.iter().filter_map(|at| row.get(*at)).map(Cell::parsable).collect();
            cells.join(":") + "\n"
        };
        self.rows.iter().map(line).collect()
    }

    fn aligned(&self, places: &[usize], layout: &Layout, screen: Screen) -> String {
        let is_default = screen.is_terminal && layout.columns.is_none();
        let within = layout.within.or(is_default.then_some(TERMINAL));
        let header = !layout.no_header;
        let mut lines: Vec<Vec<(String, Option<Tone>)>> = Vec::new();
        if header {
            let name = |at: &usize| self.columns.get(*at).map(|name| (name.to_uppercase(), None));
            lines.push(places.iter().filter_map(name).collect());
        }
        for row in &self.rows {
            let cell = |at: &usize| row.get(*at).map(|cell| (cell.aligned(within), cell.tone));
            lines.push(places.iter().filter_map(cell).collect());
        }
        let width = |n: usize| {
            let cells = lines.iter().filter_map(|line| line.get(n));
            cells.map(|(text, _)| text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..places.len()).map(width).collect();
        let before: usize = widths.iter().rev().skip(1).map(|width| width + 2).sum();
        if let Some(columns) = within {
            for (cell, _) in lines.iter_mut().filter_map(|line| line.last_mut()) {
                // Below that it says nothing any more.
                let room = columns.saturating_sub(before).max(NAME);
                if cell.chars().count() > room {
                    *cell = cell.chars().take(room - 1).chain(['…']).collect();
                }
            }
        }
        let mut text = String::new();
        for line in &lines {
            let mut shown = String::new();
            for (n, (cell, tone)) in line.iter().enumerate() {
                let painted = match tone {
                    Some(tone) => screen.paint(*tone, cell),
                    None => cell.clone(),
                };
                shown.push_str(&painted);
                if n + 1 < line.len() {
                    let width = widths.get(n).copied().unwrap_or(0);
                    let pad = width.saturating_sub(cell.chars().count()) + 2;
                    shown.extend(std::iter::repeat_n(' ', pad));
                }
            }
            text.push_str(shown.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Returns a value for people: lists as `a, b`, objects as `name value, name value`, `-` for nothing.
pub fn plain(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => visible(text),
        Value::Array(all) => {
            let between = if all.iter().any(Value::is_object) { "; " } else { ", " };
            all.iter().map(plain).collect::<Vec<_>>().join(between)
        }
        Value::Object(all) => {
            let pairs =
                all.iter().map(|(name, value)| format!("{} {}", visible(name), plain(value)));
            pairs.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    };
    if text.is_empty() { "-".to_owned() } else { text }
}

/// Returns named facts, one per line.
pub fn facts(lines: &[(&str, String)]) -> String {
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 2;
    lines.iter().map(|(name, text)| format!("{name:<width$}{text}\n")).collect()
}

/// Compares numbers by size, anything else as text.
fn order(a: Option<&Cell>, b: Option<&Cell>) -> std::cmp::Ordering {
    let number = |cell: Option<&Cell>| cell.and_then(|cell| cell.value.as_f64());
    let text = |cell: Option<&Cell>| cell.map(Cell::text);
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => text(a).cmp(&text(b)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PLAIN: Screen = Screen { is_terminal: false, colour: false };

    fn table() -> Table {
        let mut table = Table::new(&["name", "age", "state"]);
        table.row(vec!["b:1".into(), 10.into(), Cell::toned("ok", Tone::Good)]);
        table.row(vec!["a\u{1b}".into(), 9.into(), Value::Null.into()]);
        table
    }

    fn list(columns: Option<&str>, sort: Option<&str>) -> Layout {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Layout { columns: owned(columns), sort: owned(sort), ..Layout::default() }
    }

    #[test]
    fn a_long_name_keeps_its_ends() {
        let name = "nfs-shared-volume-d3d4d754-9c38-4903-b6b7-549b6a16ce3a";
        let print = |within| {
            let mut table = Table::new(&["vm"]);
            table.row(vec![Cell::name(name)]);
            table.print(&Layout { within, ..Layout::default() }, PLAIN).unwrap()
        };
        assert_eq!(print(Some(80)), "VM\nnfs-shared-v…49b6a16ce3a\n");
        assert_eq!(print(None), format!("VM\n{name}\n"));
    }

    #[test]
    fn a_long_last_cell_fits_a_terminal() {
        let table = || {
            let mut table = Table::new(&["vm", "waits_for"]);
            table.row(vec!["web".into(), "no answer ".repeat(12).into()]);
            table
        };
        let layout = Layout { within: Some(80), ..Layout::default() };
        let text = table().print(&layout, PLAIN).unwrap();
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest == Some(80) && text.ends_with("…\n"), "{text}");
        let on_terminal = Screen { is_terminal: true, colour: false };
        assert_eq!(table().print(&Layout::default(), on_terminal).unwrap(), text);
        let asked = list(Some("vm,waits_for"), None);
        assert!(!table().print(&asked, on_terminal).unwrap().contains('…'));
    }

    #[test]
    fn shapes() {
        let print = |layout: &Layout| table().print(layout, PLAIN).unwrap();
        assert_eq!(
            print(&list(None, None)),
            "NAME     AGE  STATE\nb:1      10   ok\na\\u001b  9    -\n"
        );
        let parsable = Layout { parsable: true, ..list(Some("state,name"), Some("age")) };
        assert_eq!(print(&parsable), ":a\\\\u001b\nok:b\\:1\n");
        assert_eq!(
            table().usually(1).print(&list(None, None), PLAIN).unwrap(),
            "NAME\nb:1\na\\u001b\n"
        );
        assert_eq!(
            facts(&[("up", "1 s".to_owned()), ("holds", "0".to_owned())]),
            "up     1 s\nholds  0\n"
        );
        let bare = Layout { no_header: true, ..list(Some("age"), Some("-age")) };
        assert_eq!(print(&bare), "10\n9\n");
        let json = Layout { json: true, ..list(Some("name"), Some("name")) };
        assert_eq!(
            print(&json),
            "[\n  {\n    \"name\": \"a\\u001b\"\n  },\n  {\n    \"name\": \"b:1\"\n  }\n]\n"
        );
        let colours = Screen { is_terminal: true, colour: true };
        assert!(
            table().print(&list(None, None), colours).unwrap().contains("\u{1b}[32mok\u{1b}[0m")
        );
    }

    #[test]
    fn no_json_stands_in_a_cell() {
        for (value, text) in [
            (json!(["a", 1]), "a, 1"),
            (
                json!([{"mac": "x", "primary": true}, {"mac": "y\n"}]),
                "mac x, primary true; mac y\\u000a",
            ),
            (json!({"vms": []}), "vms -"),
            (json!(null), "-"),
        ] {
            assert_eq!(
                plain(&value).replace("vms -, complete false", "complete false, vms -"),
                text
            );
        }
    }

    #[test]
    fn a_name_forges_no_row() {
        let mut table = Table::new(&["name", "age", "state"]);
        table.row(vec!["a\nb:1:ok\u{202e}".into(), 10.into(), "ok".into()]);
        let parsable = Layout { parsable: true, ..Layout::default() };
        assert_eq!(table.print(&parsable, PLAIN).unwrap(), "a\\\\u000ab\\:1\\:ok\\\\u202e:10:ok\n");
    }

    #[test]
    fn unknown_columns_say_what_there_is() {
        for wrong in [list(Some("nope"), None), list(None, Some("-nope"))] {
            let error = table().print(&wrong, PLAIN).unwrap_err();
            assert_eq!(error.to_string(), "no column \"nope\": there are name, age, state");
        }
    }
}
