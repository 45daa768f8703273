//! What a run asks for and is answered: the whole of what the engine wants from the world, as values.

use std::sync::Arc;

use crate::{
    agent::{Call, CallError, Reply},
    event::{Inputs, Needs},
    jwt::{Entry, SignatureCheck, TokenKey, Verified},
    verdict::Decision,
};

/// How far a run came.
#[derive(Debug)]
pub enum Turn {
    /// It needs this, through [`Run::answer`](crate::Run::answer).
    Ask(Ask),
    /// It has decided.
    Done(Decision),
}

/// What a run can ask for.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// What the next step needs to know about the message.
    Inputs(Needs),
    /// A value that all workers share, and its version.
    Load {
        /// Its name.
        key: Arc<str>,
    },
    /// A new value for it, unless another worker was faster.
    Store {
        /// Its name.
        key: Arc<str>,
        /// The value.
        value: Vec<u8>,
        /// The version that it was made from.
        version: u32,
    },
    /// An agent's word.
    Call(Call),
    /// What a worker's [`TokenCache`](crate::jwt::TokenCache) knows of a token.
    Recall(TokenKey),
    /// To keep a token in that cache.
    Remember(Entry),
    /// Whether a signature is good, if the host can tell faster than the engine, which is what `None` leaves it to.
    Verify(SignatureCheck),
    /// That some time passes. Nobody else may be held up by it.
    Wait {
        /// So much.
        milliseconds: u32,
    },
}

/// The answer to an [`Ask`].
#[derive(Debug)]
pub enum Answer {
    /// What was asked for, as far as the host has it.
    Inputs(Inputs),
    /// The same, put where [`Run::inputs`](crate::Run::inputs) says.
    InputsInPlace,
    /// The body is larger than [`Run::body_limit`](crate::Run::body_limit).
    BodyTooLarge,
    /// The value, empty if there is none yet.
    Loaded {
        /// The bytes.
        value: Vec<u8>,
        /// Its version.
        version: u32,
    },
    /// Whether the value was stored; if not, another worker was faster.
    Stored(bool),
    /// What the agent said.
    Called(Result<Reply, CallError>),
    /// What is known of the token.
    Recalled(Option<Arc<Verified>>),
    /// The token was kept, or there is no cache.
    Remembered,
    /// Whether the signature is good; `None` if the host cannot tell.
    Verified(Option<bool>),
    /// The time has passed.
    Waited,
}
