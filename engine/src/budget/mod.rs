//! What one request may cost, in steps. Everything that request data drives draws on one [`Budget`]: expressions,
//! patterns, schemas, JSON, signatures, passwords, digests. What cannot be interrupted is charged its worst case before
//! it starts. What does not fit is not started, and its step fails with [`REASON`].
//!
//! A step is 10 ns of the filter in Envoy, or less. Charges stand beside what they are for, and [`STEPS`] is the one unit
//! that all of them relate to. Steps, not time: the same request always costs the same, whatever else a machine does.
//!
//! Measured on the engine built as the filter is, in V8 (node), in CPU time, for the dearest input that we know of each
//! kind, in nanoseconds a step: nodes of expressions 7; patterns 1 to 10, by how much of them is alive at each byte;
//! captures 1 to 4; `split` and `replace` 7 to 8, `contains` 5; all headers as a map 8; compiling a computed pattern 1 to 9;
//! JSON and schemas 5; `uniqueItems` 9. A round of PBKDF2 takes 0.6 µs.
//!
//! A request and its response share one budget. Records of auditors have one of their own, so that no caller can escape
//! an audit by spending what the audit needs.

use std::cell::Cell;

/// The steps of a request by default: about a millisecond.
pub const STEPS: u64 = 100_000;
/// The steps that make up a microsecond.
pub const STEPS_A_MICROSECOND: u64 = STEPS / 1_000;
/// What each step of a chain that reads the body may cost more for each byte of it.
pub const STEPS_A_BODY_BYTE: u64 = 8;
/// How many bytes one step pays for, where each byte is looked at once.
const BYTES_A_STEP: usize = 4;
/// The steps for each byte of SHA-256 or SHA-512: some 8 ns in Wasm.
const DIGEST_STEPS_A_BYTE: u64 = 1;
/// The steps for a digest of any size: the last block, and that of a key.
pub(crate) const DIGEST: u64 = 200;

/// The reason of a step that failed because the budget was exhausted.
pub const REASON: &str = "budget_exhausted";

/// The steps that a request may still spend.
#[derive(Debug)]
pub struct Budget {
    left: Cell<u64>,
}

/// There are not enough steps left. None was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted;

impl Default for Budget {
    fn default() -> Self {
        Self::new(STEPS)
    }
}

impl Budget {
    /// A budget with this number of steps.
    #[inline]
    pub const fn new(steps: u64) -> Self {
        Self { left: Cell::new(steps) }
    }

    /// The steps that are left.
    #[inline]
    pub fn left(&self) -> u64 {
        self.left.get()
    }

    /// Takes steps for what is about to be done: all of them, or none.
    ///
    /// A step that fails leaves what there is to the steps behind it: with `onFailure: continue`, a cheap one that denies
    /// still decides.
    #[inline]
    pub fn spend(&self, steps: u64) -> Result<(), Exhausted> {
        let left = self.left.get().checked_sub(steps).ok_or(Exhausted)?;
        self.left.set(left);
        meter::spend(steps);
        Ok(())
    }

    /// Charges for looking at this number of bytes, each a bounded number of times. Call it before.
    #[inline]
    pub fn read(&self, bytes: usize) -> Result<(), Exhausted> {
        self.spend(steps(bytes.div_ceil(BYTES_A_STEP)))
    }

    /// Charges for a digest of this number of bytes. Call it before.
    pub(crate) fn digest(&self, bytes: usize) -> Result<(), Exhausted> {
        self.spend(digest_steps(bytes))
    }

    /// Adds steps for what a policy declares, or for a body that a step reads.
    pub fn allow(&self, steps: u64) {
        self.left.set(self.left.get().saturating_add(steps));
    }

    /// Counts steps that are always allowed, because a policy declares them and they do not grow with the request: the
    /// rounds of a password, one check of a signature, reading a token of the largest size.
    #[inline]
    #[expect(clippy::unused_self, reason = "whoever is allowed steps has a budget")]
    pub(crate) fn declare(&self, steps: u64) {
        meter::declare(steps);
    }

    /// Adds the steps that a body of this number of bytes allows.
    pub(crate) fn allow_body(&self, bytes: usize) {
        self.allow(steps(bytes).saturating_mul(STEPS_A_BODY_BYTE));
    }
}

/// The cost of a digest of this number of bytes.
pub(crate) fn digest_steps(bytes: usize) -> u64 {
    steps(bytes).saturating_mul(DIGEST_STEPS_A_BYTE).saturating_add(DIGEST)
}

/// A count as a number of steps.
pub(crate) fn steps(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(feature = "meter")]
pub mod meter;
#[cfg(not(feature = "meter"))]
pub(crate) mod meter {
    //! Without the feature `meter`, nothing is counted.

    #[inline(always)]
    pub(crate) fn work(_units: usize) {}

    #[inline(always)]
    pub(crate) fn spend(_steps: u64) {}

    #[inline(always)]
    pub(crate) fn declare(_steps: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_all_or_nothing() {
        let budget = Budget::new(10);
        assert_eq!(budget.spend(11), Err(Exhausted));
        assert_eq!((budget.spend(4), budget.left()), (Ok(()), 6));
        assert_eq!((budget.spend(7), budget.left()), (Err(Exhausted), 6));
        budget.allow(1);
        assert_eq!((budget.spend(7), budget.left()), (Ok(()), 0));
        assert_eq!(budget.spend(0), Ok(()));
    }

    #[test]
    fn cannot_overflow() {
        let budget = Budget::new(u64::MAX);
        budget.allow(u64::MAX);
        budget.allow_body(usize::MAX);
        assert_eq!(budget.left(), u64::MAX);
        assert_eq!(budget.read(usize::MAX), Ok(()));
    }
}
