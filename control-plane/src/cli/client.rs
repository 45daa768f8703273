//! How commands reach a running control plane.

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde_json::Value;

/// Where the control plane is, and how answers look.
#[derive(Debug, Args)]
pub(super) struct Remote {
    /// Where the control plane serves HTTP
    #[arg(long, value_name = "ADDRESS", env = "POSTERN_SERVER", default_value = "127.0.0.1:18001")]
    server: String,
    /// How the answer looks
    #[arg(long, short, value_enum, default_value = "table")]
    pub(super) output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    Table,
    Json,
}

impl Remote {
    pub(super) fn get(&self, path: &str) -> anyhow::Result<Value> {
        let answer = agent().get(self.url(path)).call();
        self.read(answer)
    }

    pub(super) fn post(&self, path: &str, body: &Value, parent: Option<u64>) -> anyhow::Result<Value> {
        let mut request = agent().post(self.url(path)).header("content-type", "application/json");
        if let Some(parent) = parent {
            request = request.header("if-match", format!("\"{parent}\""));
        }
        let answer = request.send(body.to_string());
        self.read(answer)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.trim_start_matches("http://"))
    }

    fn read(&self, answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> anyhow::Result<Value> {
        let mut answer = answer.with_context(|| {
            format!(
                "no control plane answers at {}: start one with `postern serve`, or name it with `--server`",
                self.server
            )
        })?;
        let text = answer.body_mut().read_to_string().context("the answer ended early")?;
        let value: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        if answer.status().is_success() {
            return Ok(value);
        }
        match at(&value, "/detail").as_str() {
            Some(detail) => bail!("{detail}"),
            None => bail!("{}: {text}", answer.status()),
        }
    }
}

fn agent() -> ureq::Agent {
    let config =
        ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(Duration::from_secs(120)));
    config.build().into()
}

/// A part of an answer, by its JSON pointer; null if it is not there.
pub(super) fn at<'a>(value: &'a Value, place: &str) -> &'a Value {
    value.pointer(place).unwrap_or(&Value::Null)
}
