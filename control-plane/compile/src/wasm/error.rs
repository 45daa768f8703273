//! What can go wrong, and what the filter said about it.

use super::logging::LogLine;

/// A module that cannot be run at all.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// It is not WebAssembly, or uses what we do not offer.
    #[error("the module cannot be compiled: {0}")]
    Compile(String),
    /// It imports what proxy-wasm does not have.
    #[error("the module cannot be linked: {0}")]
    Link(String),
    /// It speaks another ABI, or none.
    #[error("the module does not export `{0}`")]
    Missing(&'static str),
    /// It exports a callback under a signature that the ABI does not give it.
    #[error("the module's export `{name}` cannot be called: {cause}")]
    Signature {
        /// The export.
        name: &'static str,
        /// What wasmtime says about it.
        cause: String,
    },
    /// It failed before its first callback.
    #[error(transparent)]
    Start(#[from] Crash),
    /// Its compiled form could not be written.
    #[error("the compiled module cannot be written: {0}")]
    Serialize(String),
    /// Its compiled form is not what this build of wasmtime makes.
    #[error("the compiled module cannot be used: {0}")]
    Restore(String),
}

/// A module that trapped, or that a limit stopped.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the filter failed in `{callback}`: {cause}{}", quoted(log))]
pub struct Crash {
    /// The callback under way.
    pub callback: &'static str,
    /// What ended it.
    pub cause: Cause,
    /// What the filter logged in that callback.
    pub log: Vec<LogLine>,
}

/// Why a module was ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// It used up its fuel: it loops, or its work has no bound.
    #[error("it used up its {fuel} units of fuel")]
    Fuel {
        /// What it had.
        fuel: u64,
    },
    /// It trapped after more memory was refused to it.
    #[error("it needs more than its {bytes} bytes of memory")]
    Memory {
        /// What it may have.
        bytes: usize,
    },
    /// It trapped.
    #[error("{0}")]
    Trap(String),
}

/// A call that a VM did not carry out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The filter failed in this call.
    #[error(transparent)]
    Crashed(#[from] Crash),
    /// It failed in an earlier one: the VM takes no more.
    #[error("the VM has ended: {0}")]
    Ended(Crash),
    /// There is no such root, stream or callout in this VM, or no longer.
    #[error("there is no {what} {number} in this VM")]
    Unknown {
        /// What kind of thing.
        what: &'static str,
        /// Its number.
        number: u32,
    },
}

/// A configuration that the filter did not take.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refused {
    /// It said no; its log lines say why.
    #[error("the filter refused its configuration{}", quoted(log))]
    Declined {
        /// What the filter logged about it.
        log: Vec<LogLine>,
    },
    /// It failed over it, or had failed before.
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

/// The lines that say what is wrong, behind a colon.
fn quoted(log: &[LogLine]) -> String {
    let grave = log.iter().filter(|line| line.level >= super::LogLevel::Warn);
    grave.map(|line| format!(": {}", line.text)).collect()
}
