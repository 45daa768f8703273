//! The names of functions, operators and macros, and how each is called.

use postern_base::diagnostic::{quote, suggestion};
use postern_engine::cel;
use postern_proto::plan::v1::expression::{Function, Macro};

/// The call styles of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// `f(x)`.
    Global,
    /// `x.f()`.
    Receiver,
    /// Both `f(x)` and `x.f()`.
    Both,
}

pub(super) const FUNCTIONS: &[(Function, Style)] = &[
    (Function::Size, Style::Both),
    (Function::Matches, Style::Both),
    (Function::StartsWith, Style::Receiver),
    (Function::EndsWith, Style::Receiver),
    (Function::Contains, Style::Receiver),
    (Function::LowerAscii, Style::Receiver),
    (Function::UpperAscii, Style::Receiver),
    (Function::Trim, Style::Receiver),
    (Function::Split, Style::Receiver),
    (Function::Replace, Style::Receiver),
    (Function::Substring, Style::Receiver),
    (Function::IndexOf, Style::Receiver),
    (Function::CharAt, Style::Receiver),
    (Function::Bool, Style::Global),
    (Function::Int, Style::Global),
    (Function::Uint, Style::Global),
    (Function::Double, Style::Global),
    (Function::String, Style::Global),
    (Function::Bytes, Style::Global),
    (Function::Timestamp, Style::Global),
    (Function::Duration, Style::Global),
    (Function::GetFullYear, Style::Receiver),
    (Function::GetMonth, Style::Receiver),
    (Function::GetDate, Style::Receiver),
    (Function::GetDayOfMonth, Style::Receiver),
    (Function::GetDayOfWeek, Style::Receiver),
    (Function::GetDayOfYear, Style::Receiver),
    (Function::GetHours, Style::Receiver),
    (Function::GetMinutes, Style::Receiver),
    (Function::GetSeconds, Style::Receiver),
    (Function::GetMilliseconds, Style::Receiver),
];

pub(super) const OPERATORS: &[(&str, Function)] = &[
    ("_&&_", Function::And),
    ("_||_", Function::Or),
    ("!_", Function::Not),
    ("_?_:_", Function::Conditional),
    ("-_", Function::Negate),
    ("_+_", Function::Add),
    ("_-_", Function::Subtract),
    ("_*_", Function::Multiply),
    ("_/_", Function::Divide),
    ("_%_", Function::Modulo),
    ("_==_", Function::Equal),
    ("_!=_", Function::NotEqual),
    ("_<_", Function::Less),
    ("_<=_", Function::LessOrEqual),
    ("_>_", Function::Greater),
    ("_>=_", Function::GreaterOrEqual),
    ("@in", Function::In),
    ("_[_]", Function::Index),
];

const MACROS: &[(&str, Macro)] = &[
    ("all", Macro::All),
    ("exists", Macro::Exists),
    ("exists_one", Macro::ExistsOne),
    ("existsOne", Macro::ExistsOne),
    ("map", Macro::Map),
    ("filter", Macro::Filter),
];

/// Names that `lower` handles itself.
const SPECIAL: &[&str] = &["has", "dyn"];

/// The operator with this name in the parser's tree.
pub(super) fn operator(name: &str) -> Option<Function> {
    OPERATORS.iter().find(|(candidate, _)| *candidate == name).map(|(_, function)| *function)
}

/// The macro with this name.
pub(super) fn comprehension(name: &str) -> Option<Macro> {
    MACROS.iter().find(|(candidate, _)| *candidate == name).map(|(_, kind)| *kind)
}

/// The function with this name and number of arguments, not counting the receiver. The error is a message for the user.
pub(super) fn function(name: &str, receiver: bool, arguments: usize) -> Result<Function, String> {
    let found = FUNCTIONS.iter().find(|(function, _)| cel::name(*function) == name);
    let on_a_value = || format!("`{name}` is called on a value: write `….{name}(…)`");
    let Some((function, style)) = found else {
        return Err(if comprehension(name).is_some() { on_a_value() } else { unknown(name) });
    };
    match (style, receiver) {
        (Style::Global, true) => return Err(format!("`{name}` is not called on a value: write `{name}(…)`")),
        (Style::Receiver, false) => return Err(on_a_value()),
        _ => {}
    }
    if name.starts_with("get") && arguments == 1 {
        return Err(format!("time zones are not supported: `{name}()` is in UTC"));
    }
    let arity = cel::arity(*function);
    let (least, most) = (arity.start() - usize::from(receiver), arity.end() - usize::from(receiver));
    if (least..=most).contains(&arguments) {
        return Ok(*function);
    }
    Err(wrong_count(name, least, most, arguments))
}

pub(super) fn wrong_count(name: &str, least: usize, most: usize, found: usize) -> String {
    let expected = if least == most { least.to_string() } else { format!("{least} to {most}") };
    let noun = if most == 1 { "argument" } else { "arguments" };
    format!("`{name}` takes {expected} {noun}, not {found}")
}

fn unknown(name: &str) -> String {
    if name == "type" {
        return "`type` is not supported: there are no values that are types".to_owned();
    }
    let functions = FUNCTIONS.iter().map(|(function, _)| cel::name(*function));
    let macros = MACROS.iter().map(|(name, _)| *name);
    let near = suggestion(name, functions.chain(macros).chain(SPECIAL.iter().copied()));
    format!("unknown function {}{near}", quote(name))
}
