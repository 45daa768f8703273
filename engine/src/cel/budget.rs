//! What one evaluation may cost. A budget that is spent stays spent, so that nothing goes on after an error of cost,
//! not even the other side of an `||`.

use super::error::ErrorKind;

/// Steps of one evaluation: one for each node, element compared, or stretch of bytes read. Some milliseconds.
const MAX_STEPS: u32 = 1 << 18;
/// Bytes that one evaluation may make.
const MAX_BYTES: usize = 4 << 20;
/// How many bytes are read for one step, where reading is linear and quick.
const BYTES_A_STEP: usize = 64;
/// What a list element counts in bytes.
const ELEMENT_BYTES: usize = 24;

#[derive(Debug)]
pub(super) struct Budget {
    steps: u32,
    bytes: usize,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self { steps: MAX_STEPS, bytes: MAX_BYTES }
    }

    pub(super) fn step(&mut self) -> Result<(), ErrorKind> {
        self.steps(1)
    }

    pub(super) fn steps(&mut self, steps: usize) -> Result<(), ErrorKind> {
        let left = u32::try_from(steps).ok().and_then(|steps| self.steps.checked_sub(steps));
        self.steps = left.unwrap_or(0);
        if left.is_some() { Ok(()) } else { Err(ErrorKind::TooCostly) }
    }

    /// Before so many bytes are looked at, each a bounded number of times.
    pub(super) fn read(&mut self, bytes: usize) -> Result<(), ErrorKind> {
        self.steps(bytes / BYTES_A_STEP)
    }

    /// Before a string or bytes of this size are made.
    pub(super) fn make(&mut self, bytes: usize) -> Result<(), ErrorKind> {
        self.read(bytes)?;
        if let Some(left) = self.bytes.checked_sub(bytes) {
            self.bytes = left;
            return Ok(());
        }
        (self.steps, self.bytes) = (0, 0);
        Err(ErrorKind::TooLarge)
    }

    /// Before a list or map of so many elements is made.
    pub(super) fn make_elements(&mut self, elements: usize) -> Result<(), ErrorKind> {
        self.make(elements.saturating_mul(ELEMENT_BYTES))
    }
}
