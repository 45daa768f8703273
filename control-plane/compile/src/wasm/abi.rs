//! The numbers of proxy-wasm ABI 0.2.1 as types.

use std::fmt;

/// Why a host call failed (`proxy_status_t` without [`OK`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    NotFound = 1,
    BadArgument = 2,
    InvalidMemoryAccess = 6,
    CasMismatch = 8,
    InternalFailure = 10,
    Unimplemented = 12,
}

/// The status of a host call that succeeded.
pub(super) const OK: u32 = 0;

/// The level of a log line (`proxy_log_level_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Every step.
    Trace = 0,
    /// Details for debugging.
    Debug = 1,
    /// Normal events.
    Info = 2,
    /// Unusual events.
    Warn = 3,
    /// Failures.
    Error = 4,
    /// Failures after which nothing works.
    Critical = 5,
}

impl LogLevel {
    pub(super) fn from_number(number: u32) -> Option<Self> {
        [Self::Trace, Self::Debug, Self::Info, Self::Warn, Self::Error, Self::Critical]
            .into_iter()
            .find(|level| *level as u32 == number)
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Critical => "critical",
        })
    }
}

/// The two directions of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Request,
    Response,
}

/// The header maps that a module can name (`proxy_map_type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Map {
    Headers(Direction),
    Trailers(Direction),
    GrpcInitialMetadata,
    GrpcTrailingMetadata,
    HttpCallHeaders,
    HttpCallTrailers,
}

impl Map {
    pub(super) fn from_number(number: u32) -> Result<Self, Status> {
        match number {
            0 => Ok(Self::Headers(Direction::Request)),
            1 => Ok(Self::Trailers(Direction::Request)),
            2 => Ok(Self::Headers(Direction::Response)),
            3 => Ok(Self::Trailers(Direction::Response)),
            4 => Ok(Self::GrpcInitialMetadata),
            5 => Ok(Self::GrpcTrailingMetadata),
            6 => Ok(Self::HttpCallHeaders),
            7 => Ok(Self::HttpCallTrailers),
            _ => Err(Status::BadArgument),
        }
    }
}

/// The buffers that a module can name (`proxy_buffer_type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Buffer {
    Body(Direction),
    /// TCP data and arguments of foreign functions: in the ABI, but always empty here.
    Empty,
    HttpCallBody,
    GrpcMessage,
    VmConfiguration,
    PluginConfiguration,
}

impl Buffer {
    pub(super) fn from_number(number: u32) -> Result<Self, Status> {
        match number {
            0 => Ok(Self::Body(Direction::Request)),
            1 => Ok(Self::Body(Direction::Response)),
            2 | 3 | 8 => Ok(Self::Empty),
            4 => Ok(Self::HttpCallBody),
            5 => Ok(Self::GrpcMessage),
            6 => Ok(Self::VmConfiguration),
            7 => Ok(Self::PluginConfiguration),
            _ => Err(Status::BadArgument),
        }
    }
}
