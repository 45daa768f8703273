//! Constant folding: replaces terms that read nothing by their values, computed by the engine itself. A term that fails
//! to evaluate is kept, because another operand may absorb the error at run time.

use postern_engine::{
    budget::Budget,
    cel::{Expression, NoAttributes, Value},
};

use super::term::{Comprehension, Kind, Term};

/// The largest value that replaces a term, in values and bytes.
const LARGEST: usize = 4_096;

pub(super) fn fold(term: Term) -> Term {
    if let Some(value) = value_of(&term) {
        return Term::constant(term.column, value);
    }
    let each = |terms: Vec<Term>| terms.into_iter().map(fold).collect();
    let kind = match term.kind {
        Kind::Select(operand, field) => Kind::Select(Box::new(fold(*operand)), field),
        Kind::Has(operand, field) => Kind::Has(Box::new(fold(*operand)), field),
        Kind::List(elements) => Kind::List(each(elements)),
        Kind::Map(entries) => Kind::Map(entries.into_iter().map(|(key, value)| (fold(key), fold(value))).collect()),
        Kind::Call(function, arguments) => Kind::Call(function, each(arguments)),
        Kind::Comprehension(comprehension) => Kind::Comprehension(Box::new(Comprehension {
            kind: comprehension.kind,
            range: fold(comprehension.range),
            filter: comprehension.filter.map(fold),
            body: fold(comprehension.body),
        })),
        leaf => leaf,
    };
    Term { kind, ..term }
}

/// The value of a term that reads nothing. `None` if it fails or is too large.
fn value_of(term: &Term) -> Option<Value> {
    if matches!(term.kind, Kind::Constant(_)) || reads(term) {
        return None;
    }
    // A variable outside of its comprehension does not load.
    let expression = Expression::load(&term.to_wire()).ok()?;
    let value = expression.evaluate(&NoAttributes, &Budget::default()).ok()?;
    let mut left = LARGEST;
    fits(&value, &mut left).then_some(value)
}

fn reads(term: &Term) -> bool {
    match &term.kind {
        Kind::Attribute(_) | Kind::HasAttribute(_) | Kind::Member(..) | Kind::HasMember(..) => true,
        Kind::Constant(_) | Kind::Variable(_) => false,
        Kind::Select(operand, _) | Kind::Has(operand, _) => reads(operand),
        Kind::List(terms) | Kind::Call(_, terms) => terms.iter().any(reads),
        Kind::Map(entries) => entries.iter().any(|(key, value)| reads(key) || reads(value)),
        Kind::Comprehension(of) => reads(&of.range) || reads(&of.body) || of.filter.as_ref().is_some_and(reads),
    }
}

/// Whether a value is small enough. Stops early: values can share parts, so their size can be exponential.
fn fits(value: &Value, left: &mut usize) -> bool {
    let size = match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 1,
    };
    let Some(rest) = left.checked_sub(size.max(1)) else { return false };
    *left = rest;
    match value {
        Value::List(elements) => elements.iter().all(|element| fits(element, left)),
        Value::Map(map) => map.iter().all(|(key, value)| fits(&key.to_value(), left) && fits(value, left)),
        _ => true,
    }
}
