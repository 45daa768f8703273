//! Why a plan is refused. Every part of a plan loads itself, and says so in these words.

use std::{fmt, sync::Arc};

use postern_proto::plan::v1::{FORMAT, OLDEST_FORMAT};

use crate::{cel, event::Phase, site::Site};

/// Why a plan was refused.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The bytes are no plan.
    #[error("the plan cannot be decoded: {0}")]
    Decode(prost::DecodeError),
    /// The plan was written for another engine.
    #[error("plan format {0} is not supported, this engine loads formats {OLDEST_FORMAT} to {FORMAT}")]
    Format(u32),
    /// A step's policy came later than this engine.
    #[error("a policy that this engine does not know")]
    UnknownPolicy,
    /// A policy stands in a chain where it cannot run.
    #[error("the policy cannot run in this phase")]
    Phase,
    /// A failure mode came later than this engine.
    #[error("failure mode {0} does not exist")]
    OnFailure(i32),
    /// A status that cannot end a request.
    #[error("status {0} is not between 200 and 599")]
    Status(u32),
    /// A policy lacks what it cannot be without.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// A number that is out of its range.
    #[error("`{what}` must be between {least} and {most}, but is {value}")]
    Range {
        /// What it is.
        what: &'static str,
        /// The least that it may be.
        least: u64,
        /// The most that it may be.
        most: u64,
        /// What it is instead.
        value: u64,
    },
    /// An expression that cannot be evaluated.
    #[error(transparent)]
    Expression(#[from] cel::LoadError),
    /// A step that fails whatever a request says.
    #[error("it takes {least} steps or more, and a request has {steps}: it can only ever fail")]
    TooCostly {
        /// What it takes at the least, with what the steps before it take.
        least: u64,
        /// What a request has.
        steps: u64,
    },
    /// An index points nowhere.
    #[error("{what} {index} does not exist, there are {size}")]
    Index {
        /// What is indexed.
        what: &'static str,
        /// The index.
        index: u32,
        /// How many there are.
        size: usize,
    },
    /// Two of what there must be one of.
    #[error("{what} `{name}` is there twice")]
    Repeated {
        /// What it is.
        what: &'static str,
        /// Which it is.
        name: Arc<str>,
    },
    /// A string that cannot be what it is used for.
    #[error("`{}` is not a valid {what}", text.escape_debug())]
    Unfit {
        /// What it is used for.
        what: &'static str,
        /// The string.
        text: Arc<str>,
    },
    /// A header that no step may edit.
    #[error("header `{}` cannot be edited: {why}", name.escape_debug())]
    Header {
        /// The header.
        name: Arc<str>,
        /// Why.
        why: &'static str,
    },
    /// A digest that is not SHA-256.
    #[error("an API key's digest has {size} bytes instead of 32")]
    Digest {
        /// Its size.
        size: usize,
    },
    /// A key that signatures cannot be checked with.
    #[error("the key cannot be used: {0}")]
    Key(&'static str),
    /// A record would have to wait for a body.
    #[error("an audit log cannot read the body")]
    AuditedBody,
    /// A network that is not 5 or 17 bytes of address and prefix length, or that has bits set past its prefix.
    #[error("{size} bytes that are no network")]
    Network {
        /// How many bytes.
        size: usize,
    },
    /// Where in the plan the error is.
    #[error("{place}: {error}")]
    Within {
        /// The place.
        place: PlanPart,
        /// What is wrong there.
        error: Box<LoadError>,
    },
}

impl LoadError {
    /// The same error with the place that it stands in.
    pub(crate) fn within(self, place: impl Into<PlanPart>) -> Self {
        Self::Within { place: place.into(), error: Box::new(self) }
    }

    /// Where in the plan the error is, and what is wrong there.
    pub fn locate(&self) -> (Site, &Self) {
        let (mut site, mut error) = (Site::Elsewhere, self);
        while let Self::Within { place, error: inner } = error {
            match (place, &mut site) {
                (PlanPart::Chain(index), _) => site = Site::Chain { index: *index, phase: None, step: None },
                (PlanPart::Phase(found), Site::Chain { phase, .. }) => *phase = Some(*found),
                (PlanPart::Step(name), Site::Chain { step, .. }) => *step = Some(Arc::clone(name)),
                (PlanPart::Consumer(name), _) => site = Site::Consumer(Arc::clone(name)),
                (PlanPart::Issuer(name), _) => site = Site::Issuer(Arc::clone(name)),
                (PlanPart::Phase(_) | PlanPart::Step(_) | PlanPart::Other(_), _) => break,
            }
            error = inner;
        }
        (site, error)
    }
}

/// A part of a plan that an error is in.
#[derive(Debug)]
pub enum PlanPart {
    /// The chain at this place.
    Chain(usize),
    /// This phase of a chain.
    Phase(Phase),
    /// The step of this name.
    Step(Arc<str>),
    /// The consumer of this name.
    Consumer(Arc<str>),
    /// The issuer of this name.
    Issuer(Arc<str>),
    /// Any other, in words.
    Other(String),
}

impl From<String> for PlanPart {
    fn from(words: String) -> Self {
        Self::Other(words)
    }
}

impl From<&str> for PlanPart {
    fn from(words: &str) -> Self {
        Self::Other(words.to_owned())
    }
}

impl fmt::Display for PlanPart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chain(index) => write!(formatter, "chain {index}"),
            Self::Phase(phase) => formatter.write_str(phase.name()),
            Self::Step(name) => write!(formatter, "step `{name}`"),
            Self::Consumer(name) => write!(formatter, "consumer `{name}`"),
            Self::Issuer(name) => write!(formatter, "issuer `{name}`"),
            Self::Other(words) => formatter.write_str(words),
        }
    }
}
