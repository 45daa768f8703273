//! Review of all resources before they are in force: dangling references, routes without authentication, likely
//! mistakes, and guards that a change removes. It reports, and changes nothing.

mod expiry;
mod exposure;
mod guard;
mod loss;
mod references;
mod unguarded;
mod waiting;

use std::sync::Arc;

use postern_model::{Bundle, Diagnostic, Diagnostics};

pub use self::expiry::{Expiring, Expiry};
use self::unguarded::Doors;
pub use self::{loss::lost_guards, waiting::Waiting};
use crate::{
    attach::{Attachment, Scope, attach, faults, imagined_groups},
    expression::Expressions,
    lint::{Finding, Lint},
};

/// All findings by file and line, or all errors if there are any.
pub fn review(bundle: &Bundle) -> Result<Vec<Finding>, Diagnostics> {
    let mut errors = references::unknown(bundle);
    let (mut lint, mut doors) = (Lint::default(), Doors::default());
    let expressions = Arc::<Expressions>::default();
    for node in imagined_groups(bundle) {
        let scope = Scope::of(bundle, &node);
        let attachment = Attachment { expressions: Arc::clone(&expressions), ..attach(&scope) };
        lint.look(&scope, &attachment);
        errors.extend(faults(&scope));
        doors.look(&node, &scope, &attachment);
    }
    let (denied, mut findings) = unguarded::judge(doors, bundle);
    errors.extend(denied);
    Diagnostics::reject(errors)?;
    findings.extend(lint.finish(bundle));
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// An error for each reference to a route or a service that nothing declares. [`review`] reports them, too.
pub fn names_nothing(bundle: &Bundle) -> Vec<Diagnostic> {
    references::unknown(bundle)
}

/// The names as a list in a sentence: all of them, or the first few and how many more.
fn listed(names: impl IntoIterator<Item = String>) -> String {
    const MOST: usize = 8;
    let names: Vec<_> = names.into_iter().collect();
    let shown = names.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
