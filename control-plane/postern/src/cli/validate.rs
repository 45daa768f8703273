//! `postern validate`: checks a directory without a server, and prints errors and warnings.

use std::{io, path::PathBuf};

use anstyle::{AnsiColor, Style};
use clap::Args;
use postern_base::terminal;
use postern_compile::{lint::Finding, pipeline::CompileError, snapshot::FilterCode};
use postern_model::{Diagnostics, directory};
use postern_tools::validate;
use serde_json::json;

use super::{client::Output, filter::FilterOptions};

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const DIM: Style = Style::new().dimmed();

/// Check a directory or a file of resources without a server; exit code 1 if something is wrong
#[derive(Debug, Args)]
pub(super) struct Validate {
    /// The directory with `.yaml` files, or one file
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Fail on warnings too
    #[arg(long)]
    deny_warnings: bool,
    #[command(flatten)]
    filter: FilterOptions,
    /// How the outcome is written
    #[arg(long, short, value_enum, default_value = "table")]
    output: Output,
}

impl Validate {
    /// Writes errors and warnings. Fails if there is an error, or a warning with `--deny-warnings`.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let files = directory::read_path(&self.path)?;
        let code = self.filter.read_if_there()?;
        let alone = code.is_none();
        let code = code.unwrap_or_else(|| FilterCode::new(Vec::new(), None));
        let (errors, warnings) = match validate::check(&files, &code) {
            Ok(warnings) => (None, warnings),
            Err(CompileError::Diagnostics(errors)) => (Some(errors), Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let ignored = directory::ignored(&self.path);
        let ignored: Vec<_> = ignored.iter().map(|path| path.display().to_string()).collect();
        let valid = errors.is_none();
        let outcome = json!({
            "valid": valid, "files": files.len(), "errors": errors, "warnings": warnings, "ignored": ignored,
        });
        if !self.output.write(&outcome)? {
            for path in &ignored {
                anstream::eprintln!(
                    "{WARNING}note{WARNING:#}: {path} is ignored: resources are read from `.yaml` and `.yml` files"
                );
            }
            self.show(files.len(), alone, errors.as_ref(), &warnings)?;
        }
        let warned = self.deny_warnings && !warnings.is_empty();
        match errors.map_or(0, |errors| errors.iter().count()) {
            0 if !warned => Ok(()),
            0 => anyhow::bail!("{} denied", counted(warnings.len(), "warning")),
            errors => anyhow::bail!("{}", counted(errors, "error")),
        }
    }

    fn show(&self, files: usize, alone: bool, errors: Option<&Diagnostics>, warnings: &[Finding]) -> io::Result<()> {
        for error in errors.into_iter().flatten() {
            anstream::eprintln!("{ERROR}error{ERROR:#}: {error}");
        }
        for Finding { code, at } in warnings {
            anstream::eprintln!("{WARNING}warning{WARNING:#}: {at} {DIM}[{code}]{DIM:#}");
        }
        if errors.is_some() {
            return Ok(());
        }
        let noted = match warnings.len() {
            0 => String::new(),
            count => format!(", {}", counted(count, "warning")),
        };
        let alone = if alone { " (no filter was found: checked by the engine alone)" } else { "" };
        let (directory, files) = (self.path.display(), counted(files, "file"));
        terminal::write(&format!("{directory}: {GOOD}valid{GOOD:#}, {files}{noted}{alone}\n"))
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
