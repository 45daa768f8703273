//! The HTTP client of commands, and the formats of their output.

use std::{io::BufReader, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use postern_base::{terminal, yaml::to_yaml};
use serde_json::Value;
use ureq::{
    Body,
    http::{Response, StatusCode},
};

/// Where the control plane is.
#[derive(Debug, Args)]
pub(super) struct Server {
    /// Where the control plane serves HTTP
    #[arg(long, value_name = "ADDRESS", env = "POSTERN_SERVER", default_value = "127.0.0.1:18001", value_parser = server)]
    server: String,
}

/// Where the control plane is, and how answers look.
#[derive(Debug, Args)]
pub(super) struct Remote {
    #[command(flatten)]
    pub(super) server: Server,
    /// How the answer looks
    #[arg(long, short, value_enum, default_value = "table")]
    pub(super) output: Output,
}

/// How an answer looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people
    #[value(alias = "text")]
    Table,
    /// For programs
    Json,
    /// For both
    Yaml,
}

impl Output {
    /// Writes an answer as JSON or YAML. Returns false, and writes nothing, if the output is for people.
    pub(super) fn write(self, value: &Value) -> anyhow::Result<bool> {
        match self {
            Self::Table => return Ok(false),
            Self::Json => terminal::write(&format!("{value:#}\n"))?,
            Self::Yaml => terminal::write(&to_yaml(value))?,
        }
        Ok(true)
    }
}

impl Server {
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

    pub(super) fn delete(&self, path: &str, parent: Option<u64>) -> anyhow::Result<Value> {
        let mut request = agent().delete(self.url(path));
        if let Some(parent) = parent {
            request = request.header("if-match", format!("\"{parent}\""));
        }
        let answer = request.call();
        self.read(answer)
    }

    /// The lines of an endless answer, as they come.
    pub(super) fn follow(
        &self,
        path: &str,
        last: Option<&str>,
    ) -> anyhow::Result<BufReader<ureq::BodyReader<'static>>> {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let mut request = agent.get(self.url(path)).header("accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let answer = self.reached(request.call())?;
        if answer.status() != StatusCode::OK {
            self.read(Ok(answer))?;
            bail!("the control plane at {} has no events to follow", self.server);
        }
        Ok(BufReader::new(answer.into_body().into_reader()))
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.trim_start_matches("http://"))
    }

    fn reached(&self, answer: Result<Response<Body>, ureq::Error>) -> anyhow::Result<Response<Body>> {
        answer.with_context(|| {
            format!(
                "no control plane answers at {}: start one with `postern serve`, or name it with `--server`",
                self.server
            )
        })
    }

    fn read(&self, answer: Result<Response<Body>, ureq::Error>) -> anyhow::Result<Value> {
        let mut answer = self.reached(answer)?;
        // The limit is that of the largest bundle.
        let text =
            answer.body_mut().with_config().limit(256 << 20).read_to_string().context("the answer ended early")?;
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

/// A host and a port, with or without `http://`.
fn server(text: &str) -> Result<String, String> {
    if text.starts_with("https://") {
        return Err(
            "the control plane does not serve HTTPS yet: it listens on loopback addresses, in the clear. On its \
                    machine, write `127.0.0.1:18001`; from elsewhere, forward the port, such as with `ssh -L \
                    18001:127.0.0.1:18001 HOST`"
                .to_owned(),
        );
    }
    let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    match address {
        "" => Err("expected an address such as `127.0.0.1:18001`".to_owned()),
        _ if address.contains("://") => {
            Err(format!("{text} is no HTTP address: expected one such as `127.0.0.1:18001`"))
        }
        _ if address.contains('/') => Err(format!("{text} has a path: expected a host and a port alone")),
        _ => Ok(address.to_owned()),
    }
}

fn agent() -> ureq::Agent {
    let config =
        ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(Duration::from_secs(120)));
    config.build().into()
}

/// The part of an answer at a JSON pointer, or null.
pub(super) fn at<'a>(value: &'a Value, place: &str) -> &'a Value {
    value.pointer(place).unwrap_or(&Value::Null)
}

/// The items of a list; empty if the value is no list.
pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A string, or a dash if the value is none.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
