//! What one evaluation may cost: steps of the request's budget, and bytes of its own. An error of cost is final, so that
//! nothing goes on after it, not even the other side of an `||`.

use super::error::ErrorKind;
use crate::budget::{self, Exhausted, meter::work};

/// The cost of a node of an expression, or of comparing two values.
pub(super) const NODE: u64 = 4;
/// How many bytes one evaluation may allocate for values.
const MAX_BYTES: usize = 4 << 20;
/// How many bytes a list element counts as.
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

    /// The request's budget, which all evaluations share.
    pub(super) fn shared(&self) -> &'a budget::Budget {
        self.shared
    }

    /// Charges for evaluating a node or comparing two values. Call it before.
    pub(super) fn node(&mut self) -> Result<(), ErrorKind> {
        self.shared.spend(NODE)?;
        work(1);
        Ok(())
    }

    pub(super) fn spend(&mut self, steps: usize) -> Result<(), ErrorKind> {
        Ok(self.shared.spend(budget::steps(steps))?)
    }

    /// Charges for looking at this number of bytes, each a bounded number of times. Call it before.
    pub(super) fn read(&mut self, bytes: usize) -> Result<(), ErrorKind> {
        Ok(self.shared.read(bytes)?)
    }

    /// Charges for a string or bytes of this size. Call it before making them.
    pub(super) fn make(&mut self, bytes: usize) -> Result<(), ErrorKind> {
        self.read(bytes)?;
        self.bytes = self.bytes.checked_sub(bytes).ok_or(ErrorKind::TooLarge)?;
        work(bytes / 64);
        Ok(())
    }

    /// Charges for a list or map with this number of elements. Call it before making it.
    pub(super) fn make_elements(&mut self, elements: usize) -> Result<(), ErrorKind> {
        self.make(elements.saturating_mul(ELEMENT_BYTES))
    }
}
