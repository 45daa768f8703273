//! What the module logs.

use std::fmt;

use wasmtime::Caller;

use super::{
    abi::{LogLevel, Status},
    host::Host,
    memory::{ENV, Fault, Guest, Imports, Span, answer},
};

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

pub(super) fn link(imports: &mut Imports) -> wasmtime::Result<()> {
    imports.func_wrap(ENV, "proxy_log", |caller: Caller<'_, Host>, level: u32, text: u32, size: u32| {
        answer(log(Guest::new(caller), level, Span(text, size)))
    })?;
    imports.func_wrap(ENV, "proxy_get_log_level", |caller: Caller<'_, Host>, level: u32| {
        answer(log_level(Guest::new(caller), level))
    })?;
    Ok(())
}

fn log(mut guest: Guest<'_>, level: u32, text: Span) -> Result<(), Fault> {
    let level = LogLevel::from_number(level).ok_or(Status::BadArgument)?;
    let text = guest.read(text)?;
    guest.host().add_line(level, &text);
    Ok(())
}

fn log_level(mut guest: Guest<'_>, place: u32) -> Result<(), Fault> {
    let level = guest.host().setup.log_level as u32;
    guest.write_number(place, level)
}

impl Host {
    pub(super) fn add_line(&mut self, level: LogLevel, text: &[u8]) {
        self.log.push(LogLine { level, text: String::from_utf8_lossy(text).into_owned() });
    }
}
