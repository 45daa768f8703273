//! What a run asks for and is answered: what it may have to wait for, as values.

use crate::{
    agent::{Call, CallError, Reply},
    event::Needs,
};

/// How far a run came.
#[derive(Debug)]
pub enum Turn {
    /// It needs this, through [`Run::answer`](crate::Run::answer).
    Ask(Ask),
    /// It has decided: [`Run::take_decision`](crate::Run::take_decision) says what.
    Done,
}

/// What a run can ask for.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// What the next step needs to know about the message, as far as the host has it: through
    /// [`Run::give`](crate::Run::give), or in place.
    Inputs(Needs),
    /// An agent's word.
    Call(Call),
    /// That some time passes. Nobody else may be held up by it.
    Wait {
        /// So much.
        milliseconds: u32,
    },
}

/// The answer to an [`Ask`].
#[derive(Debug)]
pub enum Answer {
    /// The body is larger than [`Run::body_limit`](crate::Run::body_limit).
    BodyTooLarge,
    /// What the agent said.
    Called(Result<Reply, CallError>),
    /// The time has passed.
    Waited,
}
