//! `postern diff`: shows what a directory or a revision changes.

use std::path::PathBuf;

use clap::Args;
use postern_base::terminal;
use postern_tools::difference::Difference;
use serde::Deserialize as _;
use serde_json::json;

use super::{client::Remote, sources::files};

/// Say which resources, routes, steps and nodes a change would change, without changing anything
///
/// It compares as `sync` does: what is not in the sources counts as removed. With `--apply`, it compares as `apply` does.
///
/// Exit code 0 if nothing would change, 1 if something would, 2 if that cannot be told.
#[derive(Debug, Args)]
pub(super) struct Diff {
    /// Files, directories with `.yaml` files, or `-` for the standard input
    #[arg(required_unless_present = "revision", value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// Say what `apply` would change: resources that are not in the sources stay
    #[arg(long, conflicts_with = "revision")]
    apply: bool,
    /// Compare this revision instead, with the one that it followed
    #[arg(long, value_name = "N", conflicts_with = "sources")]
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
        let found = match self.revision {
            None => {
                let body = json!({ "files": files(&self.sources)?, "additions": self.apply });
                server.post("/api/v1/diff", &body, None)?
            }
            Some(number) => {
                let against = self.against.map(|number| format!("?against={number}")).unwrap_or_default();
                server.get(&format!("/api/v1/revisions/{}/diff{against}", number))?
            }
        };
        let difference = Difference::deserialize(&found)?;
        if !self.remote.output.write(&found)? {
            terminal::write(&difference.to_string())?;
        }
        Ok(!difference.is_empty())
    }
}
