//! Errors of modules, of calls and of configurations, with what the filter logged.

use super::logging::LogLine;

/// Why a module cannot be run at all.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// It is not WebAssembly, or uses features that are not enabled.
    #[error("the module cannot be compiled: {0}")]
    Compile(String),
    /// It imports a function that proxy-wasm does not have.
    #[error("the module cannot be linked: {0}")]
    Link(String),
    /// It implements another ABI, or none.
    #[error("the module does not export `{0}`")]
    Missing(&'static str),
    /// An exported callback has a signature that differs from the ABI's.
    #[error("the module's export `{name}` cannot be called: {cause}")]
    Signature {
        /// The name of the export.
        name: &'static str,
        /// The cause, from wasmtime.
        cause: String,
    },
    /// It failed while it started.
    #[error(transparent)]
    Start(#[from] Crash),
    /// It cannot be serialized.
    #[error("the compiled module cannot be written: {0}")]
    Serialize(String),
    /// Its compiled form does not fit this build of wasmtime.
    #[error("the compiled module cannot be used: {0}")]
    Restore(String),
}

/// A module trapped, or exceeded a limit.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the filter failed in `{callback}`: {cause}{}", quoted(log))]
pub struct Crash {
    /// The callback that was running.
    pub callback: &'static str,
    /// The cause.
    pub cause: Cause,
    /// What the filter logged during the callback.
    pub log: Vec<LogLine>,
}

/// Why a module was ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// It used all of its fuel: it loops, or its work is not bounded.
    #[error("it used up its {fuel} units of fuel")]
    Fuel {
        /// The fuel for a callback.
        fuel: u64,
    },
    /// It trapped after it was refused more memory.
    #[error("it needs more than its {bytes} bytes of memory")]
    Memory {
        /// The limit of its memory, in bytes.
        bytes: usize,
    },
    /// It trapped for another reason.
    #[error("{0}")]
    Trap(String),
}

/// Why a call of a VM failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The filter failed in this call.
    #[error(transparent)]
    Crashed(#[from] Crash),
    /// The filter failed in an earlier call, which ended the VM.
    #[error("the VM has ended: {0}")]
    Ended(Crash),
    /// The VM has no such root, stream or callout, or no longer.
    #[error("there is no {what} {number} in this VM")]
    Unknown {
        /// The kind of object.
        what: &'static str,
        /// The number of the object.
        number: u32,
    },
}

/// Why a filter did not accept its configuration.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refused {
    /// It refused the configuration. Its log lines have the reason.
    #[error("the filter refused its configuration{}", quoted(log))]
    Declined {
        /// What the filter logged about the configuration.
        log: Vec<LogLine>,
    },
    /// It failed, now or before.
    #[error(transparent)]
    Failed(#[from] CallError),
}

impl Refused {
    /// What the filter logged about the configuration.
    pub fn log(&self) -> &[LogLine] {
        match self {
            Self::Declined { log } | Self::Failed(CallError::Crashed(Crash { log, .. })) => log,
            Self::Failed(CallError::Ended(_) | CallError::Unknown { .. }) => &[],
        }
    }
}

/// The lines of level warning and above, each after a colon.
fn quoted(log: &[LogLine]) -> String {
    let grave = log.iter().filter(|line| line.level >= super::LogLevel::Warn);
    grave.map(|line| format!(": {}", line.text)).collect()
}
