//! A difference as text for a terminal, coloured if the terminal supports it.

use std::fmt::{self, Display, Formatter};

use anstyle::{AnsiColor, Style};
use postern_base::node::DEFAULT_MESH;
use serde_json::Value;

use super::{Change, Difference, FieldChange, ResourceChange, RouteChange, StepChange};

const HEAD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const ADDED: Style = AnsiColor::Green.on_default();
const REMOVED: Style = AnsiColor::Red.on_default();
const CHANGED: Style = AnsiColor::Yellow.on_default();

/// The maximum length of a value that is shown whole.
const LONGEST_VALUE: usize = 40;
/// The maximum number of nodes that are named.
const MOST_NAMED: usize = 6;

impl Change {
    fn mark(self) -> (Style, &'static str) {
        match self {
            Self::Added => (ADDED, "+"),
            Self::Removed => (REMOVED, "-"),
            Self::Changed => (CHANGED, "~"),
            Self::Moved => (CHANGED, "↕"),
        }
    }
}

impl Display for Difference {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return writeln!(f, "no difference");
        }
        writeln!(f, "{HEAD}resources{HEAD:#}")?;
        self.resources.iter().try_for_each(|change| resource(f, change))?;
        if !self.routes.is_empty() {
            writeln!(f, "\n{HEAD}routes{HEAD:#}")?;
            self.routes.iter().try_for_each(|change| route(f, change))?;
        }
        writeln!(f, "\n{HEAD}nodes{HEAD:#}")?;
        match (self.nodes.len(), self.live_nodes) {
            (_, 0) => writeln!(f, "  none is connected"),
            (0, live) => writeln!(f, "  none of {live} gets anything else"),
            (changed, live) => {
                let ids: Vec<_> = self.nodes.iter().map(|node| node.id.as_str()).collect();
                writeln!(f, "  {changed} of {live} get something else: {}", named(&ids))
            }
        }
    }
}

fn resource(f: &mut Formatter<'_>, change: &ResourceChange) -> fmt::Result {
    let (style, mark) = change.change.mark();
    let mesh = mesh(&change.key.mesh);
    let (kind, name) = (&change.key.kind, &change.key.name);
    writeln!(f, "  {style}{mark} {kind}/{name}{style:#}{mesh}  {DIM}{}:{}{DIM:#}", change.file, change.line)?;
    change.fields.iter().try_for_each(|change| field(f, "      ", change))
}

fn route(f: &mut Formatter<'_>, change: &RouteChange) -> fmt::Result {
    let (style, mark) = change.what.change.mark();
    let name = if change.route.is_empty() { "(every other route)" } else { &change.route };
    let nodes: Vec<_> = change.nodes.iter().map(String::as_str).collect();
    let nodes = if nodes.is_empty() { "no live node".to_owned() } else { format!("on {}", named(&nodes)) };
    writeln!(f, "  {style}{mark} {name}{style:#}{}  {DIM}{nodes}{DIM:#}", mesh(&change.mesh))?;
    change.what.fields.iter().try_for_each(|change| field(f, "      ", change))?;
    change.what.steps.iter().try_for_each(|change| step(f, change))
}

fn step(f: &mut Formatter<'_>, change: &StepChange) -> fmt::Result {
    let (style, mark) = change.change.mark();
    let policy = if change.policy == change.step { String::new() } else { format!(" ({})", change.policy) };
    let source = change.source.as_ref().map(|source| format!(" from {source}")).unwrap_or_default();
    let moved = if change.change == Change::Moved { " moved" } else { "" };
    writeln!(f, "      {style}{mark} {} {}{style:#}{policy}{source}{moved}", change.phase, change.step)?;
    change.fields.iter().try_for_each(|change| field(f, "          ", change))
}

fn field(f: &mut Formatter<'_>, indent: &str, change: &FieldChange) -> fmt::Result {
    let FieldChange { field, before, after, inherited_from } = change;
    write!(f, "{indent}{field}: ")?;
    if let Some(from) = inherited_from {
        write!(f, "{CHANGED}inherited from {from}{CHANGED:#}, ")?;
    }
    match (before, after) {
        (Some(before), Some(after)) if before == after && inherited_from.is_some() => writeln!(f, "{}", short(after)),
        (Some(before), Some(after)) if before == after => writeln!(f, "{}, another than before", short(after)),
        (Some(before), Some(after)) => {
            writeln!(f, "{REMOVED}{}{REMOVED:#} → {ADDED}{}{ADDED:#}", short(before), short(after))
        }
        (Some(before), None) => writeln!(f, "{REMOVED}{}{REMOVED:#} {DIM}is gone{DIM:#}", short(before)),
        (None, Some(after)) => writeln!(f, "{ADDED}{}{ADDED:#} {DIM}is new{DIM:#}", short(after)),
        (None, None) => writeln!(f, "{DIM}a file that it names holds something else{DIM:#}"),
    }
}

fn mesh(mesh: &str) -> String {
    if mesh == DEFAULT_MESH { String::new() } else { format!(" {DIM}of mesh{DIM:#} {mesh}") }
}

fn named(ids: &[&str]) -> String {
    let shown: Vec<_> = ids.iter().take(MOST_NAMED).copied().collect();
    match ids.len().saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// A value in one line of bounded length, without control characters.
fn short(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let line: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    match line.chars().nth(LONGEST_VALUE) {
        Some(_) => format!("{}…", line.chars().take(LONGEST_VALUE).collect::<String>()),
        None => line,
    }
}
