//! What is said of resources as a whole before they are in force: references that lead nowhere, routes that nothing
//! guards, what looks like a slip, and what a change would leave open. It decides nothing else and serves nothing.

mod exposure;
mod guard;
mod loss;
mod references;
mod unguarded;
mod waiting;

pub use self::{loss::lost_guards, waiting::Waiting};
use crate::{
    lint::{Finding, lint},
    model::{Bundle, Diagnostics},
};

/// Everything that is worth a warning, by file and line; or the errors, if there are any.
pub fn review(bundle: &Bundle) -> Result<Vec<Finding>, Diagnostics> {
    let mut errors = references::unknown(bundle);
    let (denied, mut findings) = unguarded::routes(bundle);
    errors.extend(denied);
    Diagnostics::reject(errors)?;
    findings.extend(lint(bundle));
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// The names of some things in a sentence, all of them or the first few.
fn listed(names: impl IntoIterator<Item = String>) -> String {
    const MOST: usize = 8;
    let names: Vec<_> = names.into_iter().collect();
    let shown = names.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
