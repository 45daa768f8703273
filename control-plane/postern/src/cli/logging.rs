//! The log of the commands that run until they are ended.

use std::io;

use anyhow::Context;
use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// How the log looks, and what is in it.
#[derive(Debug, Args)]
pub(super) struct Logging {
    /// How log lines look
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
    /// Which log lines are shown, such as `debug` or `postern=debug,warn`
    #[arg(long, value_name = "FILTER", env = "POSTERN_LOG", default_value = "info")]
    log: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl Logging {
    /// Logs to the standard error from now on.
    pub(super) fn start(&self) -> anyhow::Result<()> {
        let filter = EnvFilter::try_new(&self.log).with_context(|| format!("`{}` is not a log filter", self.log))?;
        let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
        match self.log_format {
            LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init(),
            LogFormat::Json => lines.json().init(),
        }
        Ok(())
    }
}
