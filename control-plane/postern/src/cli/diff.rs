//! `postern diff`: shows what a directory or a revision changes.

use std::path::PathBuf;

use clap::Args;
use postern_base::terminal;
use postern_tools::difference::Difference;
use serde::Deserialize as _;
use serde_json::json;

use super::{client::Remote, remote::files};

/// Say which resources, routes, steps and nodes a directory would change, without changing anything
///
/// Exit code 0 if nothing would change, 1 if something would, 2 if that cannot be told.
#[derive(Debug, Args)]
pub(super) struct Diff {
    /// The directory with `.yaml` files: all resources
    #[arg(required_unless_present = "revision")]
    directory: Option<PathBuf>,
    /// Compare this revision instead, with the one that it followed
    #[arg(long, value_name = "N", conflicts_with = "directory")]
    revision: Option<u64>,
    /// Compare it with this one
    #[arg(long, value_name = "N", requires = "revision")]
    against: Option<u64>,
    #[command(flatten)]
    remote: Remote,
}

impl Diff {
    /// Prints the difference. Returns whether there is one.
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let server = &self.remote.server;
        let found = match (&self.directory, self.revision) {
            (Some(directory), _) => server.post("/api/v1/diff", &json!({ "files": files(directory)? }), None)?,
            (None, number) => {
                let against = self.against.map(|number| format!("?against={number}")).unwrap_or_default();
                server.get(&format!("/api/v1/revisions/{}/diff{against}", number.unwrap_or_default()))?
            }
        };
        let difference = Difference::deserialize(&found)?;
        if !self.remote.output.write(&found)? {
            terminal::write(&difference.to_string())?;
        }
        Ok(!difference.is_empty())
    }
}
