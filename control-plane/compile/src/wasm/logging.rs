//! Log lines of a module.

use std::fmt;

use super::abi::LogLevel;

/// A line that the filter logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The level.
    pub level: LogLevel,
    /// The message.
    pub text: String,
}

impl fmt::Display for LogLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.level, self.text)
    }
}
