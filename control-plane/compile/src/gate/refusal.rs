//! Why a plan was refused, and the site of the reason in the plan.

use std::fmt;

use postern_engine::{LoadError, Site};

use crate::wasm::{CallError, Crash, HostError, LogLevel, LogLine, Refused};

/// The prefix of the filter's log line about a refusal.
const REFUSED: &str = "plan refused: ";

/// Why a plan was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The filter refused the plan.
    #[error("{}{words}", Shown(site))]
    Declined {
        /// The site in the plan.
        site: Site,
        /// The reason in the filter's words.
        words: String,
    },
    /// The filter trapped on the plan, or exceeded a limit.
    #[error("{0}")]
    Failed(String),
    /// The filter does not start.
    #[error("the filter does not start: {0}")]
    NotStarted(String),
}

impl From<&LoadError> for Refusal {
    fn from(error: &LoadError) -> Self {
        let (site, error) = error.locate();
        Self::Declined { site, words: error.to_string() }
    }
}

impl From<HostError> for Refusal {
    fn from(error: HostError) -> Self {
        Self::NotStarted(error.to_string())
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Declined { log } => Self::declined(&log),
            Refused::Failed(CallError::Crashed(Crash { .. }) | CallError::Ended(_) | CallError::Unknown { .. }) => {
                Self::Failed(refused.to_string())
            }
        }
    }
}

impl Refusal {
    /// The refusal of another build than the one that is served, which nodes may run.
    #[must_use]
    pub fn of_build(self, build: &str) -> Self {
        let named = |words| format!("filter build {build}, which nodes may still run, does not load it: {words}");
        match self {
            Self::Declined { site, words } => Self::Declined { site, words: named(words) },
            Self::Failed(words) => Self::Failed(named(words)),
            Self::NotStarted(words) => Self::NotStarted(named(words)),
        }
    }

    /// Reads the filter's last line of level warning or above, which has the reason. Without a site in it, no resource
    /// is blamed.
    fn declined(log: &[LogLine]) -> Self {
        let line = log.iter().rev().find(|line| line.level >= LogLevel::Warn);
        let text = line.map_or("the filter did not say why", |line| &line.text);
        let (words, site) = Site::split(text.strip_prefix(REFUSED).unwrap_or(text));
        Self::Declined { site: site.unwrap_or_default(), words: words.to_owned() }
    }
}

/// Shows a site as a prefix of the words.
struct Shown<'a>(&'a Site);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Site::Elsewhere => Ok(()),
            Site::Chain { index, phase, step } => {
                write!(formatter, "chain {index}: ")?;
                phase.iter().try_for_each(|phase| write!(formatter, "{}: ", phase.name()))?;
                step.iter().try_for_each(|step| write!(formatter, "step `{step}`: "))
            }
            Site::Consumer(name) => write!(formatter, "consumer `{name}`: "),
            Site::Issuer(name) => write!(formatter, "issuer `{name}`: "),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postern_engine::Phase;
    use postern_proto::plan::v1::{Chain, Consumer, FORMAT, Issuer, Plan, Step, Steps};
    use prost::Message as _;

    use super::*;

    /// Compares the refusal of a plan with one fault, natively and as parsed from the filter's line.
    #[track_caller]
    fn check(plan: Plan, site: Site, shown: &str) {
        let error = postern_engine::Plan::load(&plan.encode_to_vec()).unwrap_err();
        assert_eq!(error.to_string(), shown);
        let refusal = Refusal::from(&error);
        assert!(matches!(&refusal, Refusal::Declined { site: found, .. } if *found == site), "{refusal:?}");
        assert_eq!(refusal.to_string(), shown);
        let (site, words) = error.locate();
        let line = LogLine { level: LogLevel::Error, text: format!("{REFUSED}{words}{site}") };
        assert_eq!(Refusal::declined(&[line]), refusal);
    }

    #[test]
    fn has_the_place_of_every_fault_whatever_it_is_called() {
        let name = "a`:[at;chain%5D]";
        let of = |plan: Plan| Plan { format: FORMAT, strings: vec![name.to_owned(), String::new()], ..plan };
        let steps = Some(Steps { steps: vec![Step { name: 0, ..Step::default() }], ..Steps::default() });
        let named: Arc<str> = name.into();
        let site = |phase| Site::Chain { index: 1, phase: Some(phase), step: Some(Arc::clone(&named)) };
        let chain = Chain { request: steps.clone(), ..Chain::default() };
        let unknown = "a policy that this engine does not know";
        check(
            of(Plan { chains: vec![Chain::default(), chain], ..Plan::default() }),
            site(Phase::Request),
            &format!("chain 1: request: step `{name}`: {unknown}"),
        );
        let chain = Chain { response: steps, ..Chain::default() };
        check(
            of(Plan { chains: vec![Chain::default(), chain], ..Plan::default() }),
            site(Phase::Response),
            &format!("chain 1: response: step `{name}`: {unknown}"),
        );
        let consumer = Consumer { name: 0, api_key_sha256: vec![vec![1]], ..Consumer::default() };
        check(
            of(Plan { consumers: vec![consumer], ..Plan::default() }),
            Site::Consumer(Arc::clone(&named)),
            &format!("consumer `{name}`: an API key's digest has 1 bytes instead of 32"),
        );
        let issuer = Issuer { name: 0, issuer: 1, ..Issuer::default() };
        check(
            of(Plan { issuers: vec![issuer], ..Plan::default() }),
            Site::Issuer(Arc::clone(&named)),
            &format!("issuer `{name}`: `issuer` is missing"),
        );
        let site = Site::Elsewhere;
        check(
            Plan { format: 0, ..Plan::default() },
            site,
            "plan format 0 is not supported, this engine loads formats 3 to 4",
        );
    }
}
