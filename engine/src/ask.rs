//! The questions of a run and their answers, as values: everything that a run may have to wait for.

use crate::{
    agent::{Call, CallError, Reply},
    event::Needs,
};

/// How a run stands after it was advanced.
#[derive(Debug)]
pub enum Turn {
    /// It waits for the answer to this question, through [`Run::answer`](crate::Run::answer).
    Ask(Ask),
    /// It has decided. [`Run::take_decision`](crate::Run::take_decision) has the decision.
    Done,
}

/// A question of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// The inputs that the next step needs of the message, as far as the host has them. They are given through
    /// [`Run::give`](crate::Run::give), or in place.
    Inputs(Needs),
    /// An agent's reply.
    Call(Call),
    /// That some time passes. The driver must not hold up other requests meanwhile.
    Wait {
        /// How long.
        milliseconds: u32,
    },
}

/// The answer to an [`Ask`].
#[derive(Debug)]
pub enum Answer {
    /// The body is larger than [`Run::body_limit`](crate::Run::body_limit).
    BodyTooLarge,
    /// The agent's reply, or why there is none.
    Called(Result<Reply, CallError>),
    /// The time has passed.
    Waited,
}
