//! Compiles CEL as users write it into expressions of a plan: parsed by the crate `cel`; checked, folded and lowered
//! here; loaded by the engine as a final check. Evaluation is the engine's.
//!
//! The modules, in the order in which a text passes them: `parse` → `lower` (with `names`, `functions` and `types`) →
//! `fold` → `term` (the form in a plan) → `compiled`. `known` remembers them. `input` and `notation` are for expressions
//! without a request, and `listing` is for documentation.

mod compiled;
mod fold;
mod functions;
mod input;
mod known;
pub mod listing;
mod lower;
mod names;
mod notation;
mod parse;
mod term;
mod types;

use std::thread;

use postern_engine::event::Phase;

pub(crate) use self::known::{Compilation, Expressions};
pub use self::{compiled::Compiled, input::Input, notation::notation};
use self::{lower::Lowering, parse::Parsed};

/// The longest accepted text, in bytes.
pub const MAX_LENGTH: usize = 8 << 10;
/// The stack for the recursive parser, in bytes: enough for any text of [`MAX_LENGTH`].
const STACK: usize = 64 << 20;

/// The attributes that exist where an expression is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Environment {
    /// The request phase: there is no response.
    Request,
    /// The response phase.
    Response,
}

impl From<Phase> for Environment {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Request => Self::Request,
            Phase::Response => Self::Response,
        }
    }
}

/// An error in an expression.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{message}")]
pub struct ExpressionError {
    /// The column in characters, from 1. A line break counts as one character.
    pub column: usize,
    /// What is wrong: lower case, no full stop, user input in backticks.
    pub message: String,
}

impl ExpressionError {
    fn new(column: usize, message: impl Into<String>) -> Self {
        Self { column, message: message.into() }
    }
}

/// Compiles an expression of any type, or returns all errors in the order of the text.
///
/// It works on a thread with a large stack, since the parser's recursion is not limited. A panic of the parser becomes an
/// error.
pub fn compile(text: &str, environment: Environment) -> Result<Compiled, Vec<ExpressionError>> {
    if text.len() > MAX_LENGTH {
        return Err(vec![ExpressionError::new(1, format!("the expression is longer than {MAX_LENGTH} bytes"))]);
    }
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("expression".to_owned()).stack_size(STACK);
        let compiling = thread.spawn_scoped(scope, || compile_here(text, environment));
        let compiled = compiling.map_err(|error| format!("the expression cannot be compiled: {error}"));
        compiled
            .and_then(|thread| thread.join().map_err(|_| "the expression cannot be parsed".to_owned()))
            .unwrap_or_else(|message| Err(vec![ExpressionError::new(1, message)]))
    })
}

/// Compiles an expression whose type is bool, or unknown until it is evaluated. Returns all errors otherwise.
pub fn compile_condition(text: &str, environment: Environment) -> Result<Compiled, Vec<ExpressionError>> {
    let compiled = compile(text, environment)?;
    compiled.check_condition().map_err(|error| vec![error])?;
    Ok(compiled)
}

fn compile_here(text: &str, environment: Environment) -> Result<Compiled, Vec<ExpressionError>> {
    let parsed = Parsed::parse(text).map_err(|error| vec![error])?;
    let term = Lowering::new(&parsed, environment).lower()?;
    let of = term.of;
    Compiled::load(fold::fold(term).to_wire(), of).map_err(|error| vec![error])
}
