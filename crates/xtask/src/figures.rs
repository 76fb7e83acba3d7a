//! The figures protocol: how a bench reports its measurements.
//!
//! A *figure* is one line of JSON on a bench's standard output:
//!
//! ```json
//! {"figure":"append/sqlite/process-crash","value":123.4,"unit":"ns/record","baseline":"append/memory"}
//! ```
//!
//! - `figure` is its name: what is measured, then how, from coarse to fine, with slashes.
//! - `value` is a finite number in `unit`: a cost (`ns/record`, `KiB`), a rate (`records/s`),
//!   or a share (`%`).
//! - `baseline`, if present, names the figure that this one is compared with, in the same unit;
//!   the table shows `value / baseline`. Absolute values differ between machines and days, but
//!   ratios within one run hardly do, so claims should rest on ratios.
//!
//! Other output of a bench is forwarded unchanged. A bench (`harness = false`) measures if it
//! is called with `--bench`, as `cargo bench` does, and otherwise runs every line once, as the
//! tests do. With `WELLSPRING_QUICK` set it measures briefly.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// A measurement.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Its name.
    pub figure: String,
    /// The measured value, in `unit`.
    pub value: f64,
    /// The unit.
    pub unit: String,
    /// The name of the figure that it is compared with.
    #[serde(default)]
    pub baseline: Option<String>,
}

impl Figure {
    /// Parses a line; `None` if it is not a figure.
    ///
    /// # Errors
    ///
    /// If the line starts like a figure but is not valid.
    ///
    /// ```
    /// use xtask::figures::Figure;
    ///
    /// let figure = Figure::parse(r#"{"figure":"append/memory","value":90,"unit":"ns/record"}"#)?;
    /// assert_eq!(figure.map(|figure| figure.value), Some(90.0));
    /// assert_eq!(Figure::parse("Timer precision: 20 ns")?, None);
    /// # anyhow::Ok(())
    /// ```
    pub fn parse(line: &str) -> anyhow::Result<Option<Self>> {
        if !line.starts_with(r#"{"figure""#) {
            return Ok(None);
        }
        serde_json::from_str(line).map(Some).with_context(|| format!("not a figure: {line}"))
    }
}

/// Formats all figures of one run as an aligned Markdown table, in their original order.
///
/// # Errors
///
/// If two figures have the same name, or a figure and its baseline have different units.
pub fn table(figures: &[Figure]) -> anyhow::Result<String> {
    let mut by_name = BTreeMap::new();
    for figure in figures {
        let before = by_name.insert(figure.figure.as_str(), figure);
        ensure!(before.is_none(), "two figures are called {}", figure.figure);
    }
    let mut rows =
        vec![["figure", "value", "unit", "per second", "ratio", "to"].map(str::to_owned)];
    for figure in figures {
        let (ratio, to) = match &figure.baseline {
            None => (String::new(), String::new()),
            Some(name) => match by_name.get(name.as_str()) {
                // The baseline belongs to another crate, and only some crates were measured.
                None => ("not run".to_owned(), name.clone()),
                Some(baseline) => {
                    ensure!(
                        baseline.unit == figure.unit,
                        "{} is in {}, and its baseline {name} in {}",
                        figure.figure,
                        figure.unit,
                        baseline.unit
                    );
                    (format!("{:.2}", figure.value / baseline.value), name.clone())
                }
            },
        };
        let (name, unit) = (figure.figure.clone(), figure.unit.clone());
        rows.push([name, number(figure.value), unit, per_second(figure), ratio, to]);
    }
    Ok(aligned(&rows))
}

/// The rate per second, for a figure that is a time.
fn per_second(figure: &Figure) -> String {
    let units_per_second = match figure.unit.split_once('/') {
        Some(("ns", _)) => 1e9,
        Some(("µs", _)) => 1e6,
        Some(("ms", _)) => 1e3,
        _ => return String::new(),
    };
    number((units_per_second / figure.value).round())
}

/// Four significant digits, or all digits before the point, in groups of three.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    let digits = format!("{value:.decimals$}");
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut grouped = String::new();
    let count = whole.trim_start_matches('-').len();
    let sign = whole.len() - count;
    for (index, digit) in whole.chars().enumerate() {
        if index > sign && (count + sign - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

/// Aligns text to the left and numbers to the right.
fn aligned(rows: &[[String; 6]]) -> String {
    const RIGHT: [bool; 6] = [false, true, false, true, true, false];
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(3)
    };
    let widths = [0, 1, 2, 3, 4, 5].map(width);
    let mut table = String::new();
    for (index, row) in rows.iter().enumerate() {
        for ((cell, width), right) in row.iter().zip(widths).zip(RIGHT) {
            let _ = if right {
                write!(table, "| {cell:>width$} ")
            } else {
                write!(table, "| {cell:<width$} ")
            };
        }
        table.push_str("|\n");
        if index == 0 {
            for (width, right) in widths.iter().zip(RIGHT) {
                let rule = "-".repeat(width - usize::from(right));
                let _ = write!(table, "| {rule}{} ", if right { ":" } else { "" });
            }
            table.push_str("|\n");
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(name: &str, value: f64, unit: &str, baseline: Option<&str>) -> Figure {
        let baseline = baseline.map(str::to_owned);
        Figure { figure: name.to_owned(), value, unit: unit.to_owned(), baseline }
    }

    #[test]
    fn figures_become_a_table_with_ratios() {
        let figures = [
            figure("append/memory", 123.44, "ns/record", None),
            figure("append/sqlite/power-loss", 12_345_678.9, "ns/record", Some("append/memory")),
            figure("append/sqlite/process-crash", 185.16, "ns/record", Some("append/memory")),
            figure("reader/cost", -0.5, "%", Some("of another crate")),
        ];
        insta::assert_snapshot!(table(&figures).unwrap(), @"
        | figure                      |      value | unit      | per second |     ratio | to               |
        | --------------------------- | ---------: | --------- | ---------: | --------: | ---------------- |
        | append/memory               |      123.4 | ns/record |  8,101,102 |           |                  |
        | append/sqlite/power-loss    | 12,345,679 | ns/record |      81.00 | 100013.60 | append/memory    |
        | append/sqlite/process-crash |      185.2 | ns/record |  5,400,734 |      1.50 | append/memory    |
        | reader/cost                 |     -0.500 | %         |            |   not run | of another crate |
        ");
    }

    #[test]
    fn other_lines_are_passed_on() {
        for line in ["", "fixture │ 1.2 ns", "{\"other\":1}", " {\"figure\":1}"] {
            assert_eq!(Figure::parse(line).unwrap(), None, "{line}");
        }
    }

    #[test]
    fn half_a_figure_is_an_error() {
        for line in [
            r#"{"figure":"a","value":"1","unit":"s"}"#,
            r#"{"figure":"a","value":1}"#,
            r#"{"figure":"a","value":1,"unit":"s","base":"b"}"#,
        ] {
            let error = Figure::parse(line).unwrap_err();
            assert_eq!(error.to_string(), format!("not a figure: {line}"));
        }
    }

    #[test]
    fn figures_that_cannot_be_compared_are_an_error() {
        let one = figure("a", 1.0, "s", None);
        for (second, want) in [
            (figure("a", 2.0, "s", None), "two figures are called a"),
            (figure("b", 2.0, "ms", Some("a")), "b is in ms, and its baseline a in s"),
        ] {
            assert_eq!(table(&[one.clone(), second]).unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn numbers_keep_four_digits() {
        let shown = [0.0, 0.1234, 9.8765, 12.345, 999.94, 1234.5, -1234567.0].map(number);
        assert_eq!(shown, ["0.000", "0.123", "9.877", "12.35", "999.9", "1,234", "-1,234,567"]);
    }
}
