//! The fate of each step, for `explain` and `simulate`.

use std::sync::Arc;

use super::Run;
use crate::chain::Step;

/// The fate of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traced {
    /// Its index in the chain.
    pub place: usize,
    /// Its name.
    pub step: Arc<str>,
    /// Its fate.
    pub fate: Fate,
}

/// What can happen to a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is for other sources.
    OtherSource,
    /// Its condition is false.
    ConditionFalse,
    /// It let the message pass.
    Passed,
    /// It refused the message, for this reason.
    Denied(&'static str),
    /// It answered in place of the upstream.
    Responded,
    /// It could not decide, for this reason.
    Failed(&'static str),
}

impl Run {
    /// The fate of each step so far.
    #[cfg(feature = "trace")]
    pub fn trace(&self) -> &[Traced] {
        &self.trace
    }

    #[cfg(feature = "trace")]
    pub(super) fn note_fate(&mut self, step: &Step, fate: impl FnOnce() -> Fate) {
        self.trace.push(Traced { place: self.at, step: Arc::clone(&step.name), fate: fate() });
    }

    /// Without the feature, nothing is traced.
    #[cfg(not(feature = "trace"))]
    #[allow(clippy::unused_self, reason = "it has a use with the feature")]
    pub(super) fn note_fate(&mut self, _step: &Step, _fate: impl FnOnce() -> Fate) {}
}
