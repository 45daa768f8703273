//! Compiles CEL as users write it into expressions of a plan: parsed by the crate `cel`; checked, folded and lowered
//! here; loaded by the engine as a final check. Evaluation is the engine's.
//!
//! The modules, in the order in which a text passes them: `parse` → `lower` (with `names`, `functions` and `types`) →
//! `fold` → `term` (the form in a plan). `input` and `notation` are for expressions without a request.

mod fold;
mod functions;
mod input;
mod lower;
mod names;
mod notation;
mod parse;
mod term;
mod types;

use std::thread;

use postern_engine::cel::{self, LoadError, Type};
use postern_proto::plan::v1 as wire;

pub use self::{input::Input, notation::notation};
use self::{lower::Lowering, parse::Parsed, term::Term};

/// The longest accepted text, in bytes.
pub const MAX_LENGTH: usize = 8 << 10;
/// The stack for the recursive parser, in bytes: enough for any text of [`MAX_LENGTH`].
const STACK: usize = 64 << 20;

/// The attributes that exist where an expression is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Environment {
    /// The request phase: there is no response.
    Request,
    /// The response phase.
    Response,
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
pub fn compile(text: &str, environment: Environment) -> Result<wire::Expression, Vec<ExpressionError>> {
    apart(text, environment, None)
}

/// Compiles an expression whose type is bool, or unknown until it is evaluated. Returns all errors otherwise.
pub fn compile_condition(text: &str, environment: Environment) -> Result<wire::Expression, Vec<ExpressionError>> {
    apart(text, environment, Some(Type::Bool))
}

/// Compiles on a thread with a large stack, since the parser's recursion is not limited. A panic of the parser becomes
/// an error.
fn apart(text: &str, environment: Environment, wanted: Option<Type>) -> Result<wire::Expression, Vec<ExpressionError>> {
    if text.len() > MAX_LENGTH {
        return Err(vec![ExpressionError::new(1, format!("the expression is longer than {MAX_LENGTH} bytes"))]);
    }
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("expression".to_owned()).stack_size(STACK);
        let compiling = thread.spawn_scoped(scope, || compile_here(text, environment, wanted));
        let compiled = compiling.map_err(|error| format!("the expression cannot be compiled: {error}"));
        compiled
            .and_then(|thread| thread.join().map_err(|_| "the expression cannot be parsed".to_owned()))
            .unwrap_or_else(|message| Err(vec![ExpressionError::new(1, message)]))
    })
}

fn compile_here(
    text: &str,
    environment: Environment,
    wanted: Option<Type>,
) -> Result<wire::Expression, Vec<ExpressionError>> {
    let parsed = Parsed::parse(text).map_err(|error| vec![error])?;
    let term = Lowering::new(&parsed, environment).lower()?;
    check_type(&term, wanted).map_err(|error| vec![error])?;
    let expression = fold::fold(term).to_wire();
    match cel::Expression::load(&expression) {
        Ok(_) => Ok(expression),
        Err(error) => Err(vec![refused(&expression, &error)]),
    }
}

fn check_type(term: &Term, wanted: Option<Type>) -> Result<(), ExpressionError> {
    match (wanted, term.of) {
        (Some(wanted), Some(found)) if wanted != found => {
            let message = format!("expected an expression of type {}, found {}", wanted.name(), found.name());
            Err(ExpressionError::new(1, message))
        }
        _ => Ok(()),
    }
}

/// An error of the engine's loader as an error in the user's text.
fn refused(expression: &wire::Expression, error: &LoadError) -> ExpressionError {
    if let LoadError::Pattern { node, pattern, error } = error {
        let column = expression.nodes.get(*node).map_or(1, |node| node.column);
        let message = format!(
            "{} is not a regular expression that can be used: {error}",
            postern_base::diagnostic::quote(pattern)
        );
        return ExpressionError::new(usize::try_from(column).unwrap_or(1), message);
    }
    ExpressionError::new(1, error.to_string())
}
