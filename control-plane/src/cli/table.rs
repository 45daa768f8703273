//! Answers as tables.

use serde_json::Value;

/// The first digits of a digest.
pub(super) fn short(digest: &Value) -> String {
    digest.as_str().and_then(|digest| digest.get(..12)).unwrap_or("-").to_owned()
}

/// How long ago a time in milliseconds was.
pub(super) fn age(at: &Value) -> String {
    let now = crate::store::milliseconds(std::time::SystemTime::now());
    let seconds = now.saturating_sub(at.as_u64().unwrap_or(now)) / 1000;
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Columns as wide as what is in them.
pub(super) fn table<const COLUMNS: usize>(head: [&str; COLUMNS], rows: Vec<[String; COLUMNS]>) {
    let rows: Vec<_> = [head.map(str::to_owned)].into_iter().chain(rows).collect();
    let mut widths = [0; COLUMNS];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}
