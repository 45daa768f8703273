//! Output as tables: plain in a pipe, coloured in a terminal.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use postern_base::terminal;
use postern_engine::cel::{Timestamp, format_timestamp};
use serde_json::Value;

const HEAD: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const OPEN: Style = AnsiColor::Yellow.on_default();
const DIM: Style = Style::new().dimmed();

/// The first digits of a digest.
pub(super) fn short(digest: &Value) -> String {
    digest.as_str().and_then(|digest| digest.get(..12)).unwrap_or("-").to_owned()
}

/// The age of a time in milliseconds.
pub(super) fn age(at: &Value) -> String {
    let now = postern_release::store::milliseconds(std::time::SystemTime::now());
    let seconds = now.saturating_sub(at.as_u64().unwrap_or(now)) / 1000;
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The age of a time in seconds.
pub(super) fn age_of_seconds(at: &Value) -> String {
    age(&at.as_u64().map(|seconds| seconds.saturating_mul(1000)).into())
}

/// A time in milliseconds, in the format of logs.
pub(super) fn utc(at: &Value) -> String {
    let milliseconds = at.as_u64().unwrap_or_default();
    let nanoseconds = u32::try_from(milliseconds % 1000 * 1_000_000).unwrap_or_default();
    let seconds = i64::try_from(milliseconds / 1000).ok();
    let time = seconds.and_then(|seconds| Timestamp::new(seconds, nanoseconds));
    time.map_or_else(|| "-".to_owned(), format_timestamp)
}

/// A table that is built row by row.
#[derive(Debug)]
pub(super) struct Table<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
    /// Notes under rows, each with the number of its row.
    notes: Vec<(usize, String)>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub(super) fn new(head: [&str; COLUMNS]) -> Self {
        Self { rows: vec![head.map(str::to_owned)], notes: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: [String; COLUMNS]) {
        self.rows.push(cells);
    }

    /// Adds a note under the last row, for text that fits no column.
    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.push((self.rows.len().saturating_sub(1), note.into()));
    }

    /// The table as text. Columns are as wide as their content; columns that are empty in every row are omitted.
    pub(super) fn render(&self) -> String {
        let mut widths = [0; COLUMNS];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for (place, width) in widths.iter_mut().enumerate() {
            let empty = |row: &[String; COLUMNS]| row.get(place).is_none_or(String::is_empty);
            if self.rows.len() > 1 && self.rows.iter().skip(1).all(empty) {
                *width = 0;
            }
        }
        let mut text = String::new();
        for (place, row) in self.rows.iter().enumerate() {
            let cells: Vec<_> = row.iter().zip(widths).filter(|(_, width)| *width > 0).collect();
            for (column, (cell, width)) in cells.iter().enumerate() {
                let style = if place == 0 { HEAD } else { style_of(cell) };
                let last = column + 1 == cells.len();
                let gap = if last { 0 } else { width.saturating_sub(cell.chars().count()) + 2 };
                // Writing to a string cannot fail.
                let _ = write!(text, "{style}{cell}{style:#}{}", " ".repeat(gap));
            }
            while text.ends_with(' ') {
                text.pop();
            }
            text.push('\n');
            for (_, note) in self.notes.iter().filter(|(of, _)| *of == place) {
                for line in note.lines() {
                    let _ = writeln!(text, "  {DIM}{line}{DIM:#}");
                }
            }
        }
        text
    }

    pub(super) fn print(&self) -> anyhow::Result<()> {
        Ok(terminal::write(&self.render())?)
    }
}

/// The style of a cell: words for a state are highlighted.
fn style_of(cell: &str) -> Style {
    match cell {
        "True" | "ready" | "yes" | "completed" | "in force" => GOOD,
        "False" | "refusing" | "rolledBack" | "nodeNacked" | "changeRefused" | "rolled back" | "aborted" => BAD,
        "Unknown" | "pending" | "paused" | "progressing" | "missed" => OPEN,
        "gone" | "-" => DIM,
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn is_as_wide_as_what_is_in_it() {
        let mut table = Table::new(["NODE", "TAGS", "STATE"]);
        table.row(["edge-1".to_owned(), String::new(), "ready".to_owned()]);
        table.row(["e".to_owned(), String::new(), "refusing".to_owned()]);
        table.note("ECDS: no");
        assert_eq!(plain(&table.render()), "NODE    STATE\nedge-1  ready\ne       refusing\n  ECDS: no\n");
    }

    #[test]
    fn shows_its_head_alone() {
        assert_eq!(plain(&Table::new(["A", "B"]).render()), "A  B\n");
    }
}
