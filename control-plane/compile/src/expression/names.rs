//! Resolution of dotted names: which prefix is an attribute, and which fields follow.

use postern_base::diagnostic::{quote, suggestion};
use postern_engine::cel::{Attribute, Type};

use super::{
    Environment, ExpressionError,
    term::{Kind, Term},
};

/// A dotted name, with the column of its first part.
pub(super) struct Name<'a> {
    pub(super) column: usize,
    pub(super) parts: Vec<&'a str>,
    /// Whether it starts with a dot. Then variables of comprehensions are ignored (langdef, "Name Resolution").
    pub(super) outer: bool,
}

impl Name<'_> {
    /// The term for the name, or an error if no prefix of it is an attribute in this environment.
    pub(super) fn resolve(&self, environment: Environment) -> Result<Term, ExpressionError> {
        let found = [1, 2].into_iter().find_map(|count| {
            let name = self.parts.get(..count)?.join(".");
            let attribute = Attribute::ALL.iter().copied().find(|attribute| attribute.name() == name)?;
            Some((attribute, self.parts.get(count..)?))
        });
        let (attribute, within) = found.ok_or_else(|| self.unknown(environment))?;
        if environment == Environment::Request && attribute.of_response() {
            let message = format!("`{}` is not known before there is a response", attribute.name());
            return Err(self.error(message));
        }
        let term = Term::new(self.column, Some(attribute.value_type()), Kind::Attribute(attribute));
        within.iter().try_fold(term, |term, field| select(term, field))
    }

    fn error(&self, message: impl Into<String>) -> ExpressionError {
        ExpressionError::new(self.column, message)
    }

    fn unknown(&self, environment: Environment) -> ExpressionError {
        let known = Attribute::ALL.iter().copied();
        let known = known.filter(|attribute| environment == Environment::Response || !attribute.of_response());
        let names: Vec<_> = known.map(Attribute::name).collect();
        let root = self.parts.first().copied().unwrap_or_default();
        let prefix = format!("{root}.");
        if self.parts.len() == 1
            && let Some(example) = names.iter().find(|name| name.starts_with(&prefix))
        {
            return self.error(format!("{} is not a value: name what is in it, such as `{example}`", quote(root)));
        }
        let name = self.parts.get(..2).unwrap_or(&self.parts).join(".");
        let suggestion = suggestion(&name, names.iter().copied());
        self.error(format!("unknown attribute {}{suggestion}", quote(&name)))
    }
}

/// The term for `term.field` or `term['field']`. An entry of an attribute becomes a term of its own.
pub(super) fn select(term: Term, field: &str) -> Result<Term, ExpressionError> {
    let column = term.column;
    if let Some(of) = term.of.filter(|of| *of != Type::Map) {
        let what = match &term.kind {
            Kind::Attribute(attribute) => format!("`{}`", attribute.name()),
            _ => "this".to_owned(),
        };
        let message = format!("{what} is of type {}: it has no field {}", of.name(), quote(field));
        return Err(ExpressionError::new(column, message));
    }
    if let Kind::Attribute(attribute) = term.kind {
        check_header(attribute, field).map_err(|message| ExpressionError::new(column, message))?;
        let of = if is_headers(attribute) { Some(Type::String) } else { None };
        return Ok(Term::new(column, of, Kind::Member(attribute, field.to_owned())));
    }
    Ok(Term::new(column, None, Kind::Select(Box::new(term), field.to_owned())))
}

fn is_headers(attribute: Attribute) -> bool {
    matches!(attribute, Attribute::RequestHeaders | Attribute::ResponseHeaders)
}

/// An error for a key that no header can have, since it would never be found.
pub(super) fn check_header(attribute: Attribute, key: &str) -> Result<(), String> {
    if is_headers(attribute) && key.chars().any(|letter| letter.is_ascii_uppercase()) {
        let lower = key.to_ascii_lowercase();
        return Err(format!("names of headers are in lower case: write {} for {}", quote(&lower), quote(key)));
    }
    Ok(())
}
