//! An input as a script: choices are taken from its front, and past its end everything is 0.

/// What is left of an input.
#[derive(Debug, Clone)]
pub struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    /// All of it.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether nothing is left.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// What is left.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    /// So many bytes, or as many as there are.
    pub fn bytes(&mut self, size: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at_checked(size).unwrap_or((self.0, &[]));
        self.0 = rest;
        taken
    }

    /// A choice among so many.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    /// A truth value.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// A number: most often small, at times at the edge of its range.
    pub fn number(&mut self) -> u64 {
        match self.byte() {
            255 => u64::MAX - u64::from(self.byte()),
            254 => self.wide(),
            253 => i64::MAX.unsigned_abs().wrapping_add(u64::from(self.byte())),
            small => small.into(),
        }
    }

    /// An index into so many, at times one past them.
    pub fn index(&mut self, count: usize) -> u32 {
        let choice = self.below(count.saturating_mul(2).clamp(32, 255));
        let index = if choice < count { choice } else { choice % count.max(1) };
        let index = if choice == 31 { count } else { index };
        u32::try_from(index).unwrap_or(u32::MAX)
    }

    /// A short run of bytes.
    pub fn chunk(&mut self) -> &'a [u8] {
        let size = self.below(40);
        self.bytes(size)
    }

    /// A short text; what is not UTF-8 is replaced.
    pub fn text(&mut self) -> String {
        String::from_utf8_lossy(self.chunk()).into_owned()
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, choices: &[T], otherwise: T) -> T {
        choices.get(self.below(choices.len())).copied().unwrap_or(otherwise)
    }

    fn wide(&mut self) -> u64 {
        self.bytes(8).iter().fold(0, |number, byte| (number << 8) | u64::from(*byte))
    }
}
