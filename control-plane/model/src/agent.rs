//! `Agent`: an external policy agent.

use std::{net::SocketAddr, time::Duration};

use postern_base::{
    diagnostic::{Path, quote},
    yaml::Node,
};
use postern_engine::schema::{Field, Kind, Object};
use serde::{Deserialize, Serialize};

use super::{
    Address, format,
    kind::{self, Absence, KindSchema, Spec},
    report::Report,
    target_ref::Reach,
    unit,
};

/// The longest accepted time-out of a call.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The shortest accepted interval between two health checks.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
/// The longest path of a unix socket on Linux, in bytes.
const LONGEST_PATH: usize = 107;

/// The schema of the whole document.
const SCHEMA: KindSchema = KindSchema {
    name: "Agent",
    about: "An external policy agent, called over gRPC. In this version it becomes an Envoy cluster, \
            `agent/<name>`, and nothing calls it yet.",
    document: Object {
        fields: &[
            kind::API_VERSION,
            kind::kind(&["Agent"]),
            kind::METADATA,
            Field::required(
                "spec",
                Kind::Object(&SPEC),
                "Where the agent is, and what becomes of requests without it.",
            ),
        ],
        exactly_one_of: &[],
    },
    absence: Absence::MayOpen,
    example: EXAMPLE,
};

const EXAMPLE: &str = "\
apiVersion: postern/v1
kind: Agent
metadata: { name: risk }
spec:
  address: unix:/run/risk.sock
  timeout: 250ms
";

const SPEC: Object = Object {
    fields: &[
        Field::required("address", Kind::Text, "Where it is: `host:port`, or `unix:` and the path of a socket."),
        Field::optional("timeout", Kind::Duration, "How long a call may take, at most `5s`.").or("500ms"),
        Field::optional("retry", Kind::Object(&RETRY), "When a call is made once more; never if left out."),
        Field::optional("failOpen", Kind::Boolean, "Whether a step that it cannot decide lets the request pass.")
            .or("false"),
        Field::optional(
            "healthCheckInterval",
            Kind::Duration,
            "The time between two probes of its health, at least `1s`.",
        )
        .or("10s"),
    ],
    exactly_one_of: &[],
};

const RETRY: Object = Object {
    fields: &[
        Field::optional("attempts", Kind::Integer { min: 1, max: 5 }, "How often a call is made once more at most.")
            .or("1"),
        Field::optional("backoff", Kind::Duration, "How long to wait before that.").or("25ms"),
    ],
    exactly_one_of: &[],
};

/// The `spec` of an `Agent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Agent {
    /// The address to call.
    pub address: AgentAddress,
    /// The time-out of a call.
    #[serde(default = "timeout", deserialize_with = "unit::deserialize_duration")]
    pub timeout: Duration,
    /// When a failed call is repeated. `None` means never.
    pub retry: Option<AgentRetry>,
    /// Whether a step lets the request pass when the agent cannot decide it.
    #[serde(default)]
    pub fail_open: bool,
    /// The interval between two health checks.
    #[serde(default = "interval", deserialize_with = "unit::deserialize_duration")]
    pub health_check_interval: Duration,
}

/// When a failed call is repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentRetry {
    /// The largest number of repeated calls.
    #[serde(default = "one")]
    pub attempts: u32,
    /// The pause before a repeated call.
    #[serde(default = "backoff", deserialize_with = "unit::deserialize_duration")]
    pub backoff: Duration,
}

/// The address of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub enum AgentAddress {
    /// TCP.
    Tcp {
        /// An IP address, or a name that Envoy resolves.
        host: Address,
        /// The port, never 0.
        port: u16,
    },
    /// A unix socket, by its absolute path on the node.
    Unix(String),
}

impl TryFrom<String> for AgentAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let fits = path.starts_with('/') && path.len() <= LONGEST_PATH && !path.contains('\0');
            let message = || format!("expected `unix:` and an absolute path of at most {LONGEST_PATH} bytes");
            return if fits { Ok(Self::Unix(path.to_owned())) } else { Err(message()) };
        }
        if let Ok(socket) = text.parse::<SocketAddr>().map_err(drop)
            && socket.port() != 0
        {
            return Ok(Self::Tcp { host: Address::Ip(socket.ip()), port: socket.port() });
        }
        let parts =
            text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok().filter(|port| *port != 0)?)));
        match parts {
            Some((host, port)) if format::host(host).is_ok() && !host.starts_with('*') && !is_number(host) => {
                Ok(Self::Tcp { host: Address::Name(host.to_owned()), port })
            }
            _ => Err(format!("expected `host:port`, or `unix:` and a path, found {}", quote(&text))),
        }
    }
}

fn is_number(host: &str) -> bool {
    host.parse::<std::net::IpAddr>().is_ok()
}

const fn timeout() -> Duration {
    Duration::from_millis(500)
}

const fn interval() -> Duration {
    Duration::from_secs(10)
}

const fn backoff() -> Duration {
    Duration::from_millis(25)
}

const fn one() -> u32 {
    1
}

impl Spec for Agent {
    const SCHEMA: KindSchema = SCHEMA;

    fn reach(&self) -> Reach<'_> {
        Reach::Mesh
    }

    fn rules(spec: &Node, path: &Path<'_>, report: &mut Report<'_>) {
        let text = |name| spec.get(name).and_then(|node| Some((node.at, node.text()?)));
        if let Some((at, address)) = text("address")
            && let Err(message) = AgentAddress::try_from(address.to_owned())
        {
            report.error(at, &path.field("address"), message);
        }
        let time = |name| text(name).and_then(|(at, text)| Some((at, unit::duration(text)?)));
        if let Some((at, timeout)) = time("timeout")
            && timeout > LONGEST_TIMEOUT
        {
            report.error(at, &path.field("timeout"), "expected at most `5s`");
        }
        if let Some((at, interval)) = time("healthCheckInterval")
            && interval < SHORTEST_INTERVAL
        {
            report.error(at, &path.field("healthCheckInterval"), "expected at least `1s`");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{File, read};

    fn read_spec(spec: &str) -> Result<Agent, String> {
        let text = format!("apiVersion: postern/v1\nkind: Agent\nmetadata: {{name: opa}}\nspec: {spec}");
        let bundle = read(&[File { name: "a".to_owned(), bytes: text.into_bytes() }]);
        bundle.map(|mut bundle| bundle.agents.remove(0).spec.clone()).map_err(|errors| errors.to_string())
    }

    #[test]
    fn fills_in_defaults() {
        let expect = Agent {
            address: AgentAddress::Unix("/run/opa.sock".to_owned()),
            timeout: Duration::from_millis(500),
            retry: None,
            fail_open: false,
            health_check_interval: Duration::from_secs(10),
        };
        assert_eq!(read_spec("{address: 'unix:/run/opa.sock'}"), Ok(expect));
        let retry = read_spec("{address: 'a:1', retry: {}}").map(|agent| agent.retry);
        assert_eq!(retry, Ok(Some(AgentRetry { attempts: 1, backoff: Duration::from_millis(25) })));
    }

    #[test]
    fn knows_addresses() {
        let check = |text: &str, expect: Option<AgentAddress>| {
            assert_eq!(AgentAddress::try_from(text.to_owned()).ok(), expect, "for `{text}`");
        };
        let ip = |text: &str, port| Some(AgentAddress::Tcp { host: Address::Ip(text.parse().unwrap()), port });
        check("127.0.0.1:9191", ip("127.0.0.1", 9191));
        check("[::1]:9191", ip("::1", 9191));
        check("opa.svc:9191", Some(AgentAddress::Tcp { host: Address::Name("opa.svc".to_owned()), port: 9191 }));
        for wrong in
            ["", "opa", "opa:", "opa:0", "opa:65536", "*:1", "*.a:1", "::1:1", "300.0.0.1:1", "127.0.0.1:0", "a b:1"]
        {
            check(wrong, None);
        }
        for wrong in ["unix:", "unix:run/opa.sock", &format!("unix:/{}", "a".repeat(107))] {
            check(wrong, None);
        }
    }

    #[test]
    fn reports_everything_that_is_out_of_bounds() {
        let errors =
            read_spec("{address: opa, timeout: 6s, retry: {attempts: 0}, healthCheckInterval: 10ms}").unwrap_err();
        assert_eq!(
            errors.lines().collect::<Vec<_>>(),
            [
                "a:4:17: Agent `opa`: spec.address: expected `host:port`, or `unix:` and a path, found `opa`",
                "a:4:31: Agent `opa`: spec.timeout: expected at most `5s`",
                "a:4:53: Agent `opa`: spec.retry.attempts: expected a whole number from 1 to 5, found `0`",
                "a:4:78: Agent `opa`: spec.healthCheckInterval: expected at least `1s`",
            ]
        );
    }
}
