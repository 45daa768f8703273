//! What the module logs.

use std::fmt;

use super::abi::LogLevel;

/// A line that the filter logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// How grave it is.
    pub level: LogLevel,
    /// What it says.
    pub text: String,
}

impl fmt::Display for LogLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.level, self.text)
    }
}
