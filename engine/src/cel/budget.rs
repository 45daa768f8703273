//! What one evaluation may cost: steps of the request's budget, and bytes of its own. An error of cost is final, so that
//! nothing goes on after it, not even the other side of an `||`.

use super::error::ErrorKind;
use crate::budget::{self, Exhausted, meter::work};

/// What a node of an expression, or a comparison of two values, costs.
pub(super) const NODE: u64 = 4;
/// Bytes that one evaluation may make.
const MAX_BYTES: usize = 4 << 20;
/// What a list element counts in bytes.
const ELEMENT_BYTES: usize = 24;

#[derive(Debug)]
pub(super) struct Budget<'a> {
    shared: &'a budget::Budget,
    bytes: usize,
}

impl From<Exhausted> for ErrorKind {
    fn from(Exhausted: Exhausted) -> Self {
        Self::TooCostly
    }
}

impl<'a> Budget<'a> {
    pub(super) fn new(shared: &'a budget::Budget) -> Self {
        Self { shared, bytes: MAX_BYTES }
    }

    /// What all evaluations share.
    pub(super) fn shared(&self) -> &'a budget::Budget {
        self.shared
    }

    /// Before a node is evaluated, or two values are compared.
    pub(super) fn node(&mut self) -> Result<(), ErrorKind> {
        self.shared.spend(NODE)?;
        work(1);
        Ok(())
    }

    pub(super) fn spend(&mut self, steps: usize) -> Result<(), ErrorKind> {
        Ok(self.shared.spend(budget::steps(steps))?)
    }

    /// Before so many bytes are looked at, each a bounded number of times.
    pub(super) fn read(&mut self, bytes: usize) -> Result<(), ErrorKind> {
        Ok(self.shared.read(bytes)?)
    }

    /// Before a string or bytes of this size are made.
    pub(super) fn make(&mut self, bytes: usize) -> Result<(), ErrorKind> {
        self.read(bytes)?;
        self.bytes = self.bytes.checked_sub(bytes).ok_or(ErrorKind::TooLarge)?;
        work(bytes / 64);
        Ok(())
    }

    /// Before a list or map of so many elements is made.
    pub(super) fn make_elements(&mut self, elements: usize) -> Result<(), ErrorKind> {
        self.make(elements.saturating_mul(ELEMENT_BYTES))
    }
}
