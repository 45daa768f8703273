//! Warnings of the control plane, for people.

use anstyle::{AnsiColor, Style};
use serde_json::Value;

use super::client::{at, items, text};

const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const DIM: Style = Style::new().dimmed();

/// The maximum number of warnings that are shown; JSON and YAML have more.
const MOST: usize = 20;

/// Writes the warnings of an answer to the standard error.
pub(super) fn show(answer: &Value) {
    for (line, code) in lines(answer) {
        anstream::eprintln!("{WARNING}warning{WARNING:#}: {line} {DIM}[{code}]{DIM:#}");
    }
    if let Some(more) = more(answer) {
        anstream::eprintln!("{WARNING}warning{WARNING:#}: {more}");
    }
}

/// The first warnings, each with its code.
pub(super) fn lines(answer: &Value) -> impl Iterator<Item = (String, String)> {
    items(at(answer, "/warnings")).iter().take(MOST).map(|warning| (line(warning), text(at(warning, "/code"))))
}

/// A sentence with the number of warnings that are not shown; `None` if all are.
pub(super) fn more(answer: &Value) -> Option<String> {
    let unsent = at(answer, "/moreWarnings").as_u64().unwrap_or_default();
    let unshown = u64::try_from(items(at(answer, "/warnings")).len().saturating_sub(MOST)).unwrap_or_default();
    let more = unsent.saturating_add(unshown);
    (more > 0).then(|| format!("and {more} more"))
}

/// A warning in the format of a bundle's errors.
fn line(warning: &Value) -> String {
    let place = ["/file", "/line", "/column"].map(|part| text(at(warning, part))).join(":");
    let parts = ["/resource", "/field", "/message"].iter().map(|part| at(warning, part));
    let parts: Vec<_> = parts.filter(|part| !part.is_null()).map(text).collect();
    format!("{place}: {}", parts.join(": "))
}
