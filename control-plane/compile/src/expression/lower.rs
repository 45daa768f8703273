//! Converts the parser's tree to terms, and checks names, numbers of arguments and types. All errors are collected: a
//! wrong part becomes a null of unknown type, which fits everywhere.

use cel::{
    IdedExpr,
    common::ast::{CallExpr, EntryExpr, Expr, IdedEntryExpr, LiteralValue, SelectExpr},
};
use postern_engine::cel::{MAX_DEPTH, Type, Value};
use postern_proto::plan::v1::expression::{Function, Macro};

use super::{
    Environment, ExpressionError, functions,
    names::{self, Name},
    parse::Parsed,
    term::{Comprehension, Kind, Term},
    types,
};

pub(super) struct Lowering<'p> {
    parsed: &'p Parsed<'p>,
    environment: Environment,
    /// The variables of the enclosing comprehensions, the innermost last.
    variables: Vec<&'p str>,
    depth: usize,
    errors: Vec<ExpressionError>,
}

type Lowered = Result<Term, ExpressionError>;

impl<'p> Lowering<'p> {
    pub(super) fn new(parsed: &'p Parsed<'p>, environment: Environment) -> Self {
        Self { parsed, environment, variables: Vec::new(), depth: 0, errors: Vec::new() }
    }

    pub(super) fn lower(mut self) -> Result<Term, Vec<ExpressionError>> {
        let term = self.term(&self.parsed.root);
        self.errors.sort();
        self.errors.dedup();
        if self.errors.is_empty() { Ok(term) } else { Err(self.errors) }
    }

    /// The term of an expression. For a wrong one, records the error and returns a null.
    fn term(&mut self, expression: &'p IdedExpr) -> Term {
        self.depth += 1;
        let column = self.parsed.column(expression.id);
        let lowered = if self.depth > MAX_DEPTH {
            Err(ExpressionError::new(column, format!("nested more than {MAX_DEPTH} deep")))
        } else {
            self.lowered(expression, column)
        };
        self.depth -= 1;
        lowered.unwrap_or_else(|error| self.wrong(error))
    }

    fn wrong(&mut self, error: ExpressionError) -> Term {
        let column = error.column;
        self.errors.push(error);
        Term::new(column, None, Kind::Constant(Value::Null))
    }

    fn terms(&mut self, expressions: impl IntoIterator<Item = &'p IdedExpr>) -> Vec<Term> {
        expressions.into_iter().map(|expression| self.term(expression)).collect()
    }

    fn lowered(&mut self, expression: &'p IdedExpr, column: usize) -> Lowered {
        match &expression.expr {
            Expr::Literal(literal) => Ok(Term::constant(column, constant(literal))),
            Expr::Ident(_) => self.name(expression),
            Expr::Select(select) => self.select(expression, select),
            Expr::Call(call) => self.call(expression.id, call),
            Expr::List(list) => {
                let elements = self.terms(&list.elements);
                Ok(Term::new(column, Some(Type::List), Kind::List(elements)))
            }
            Expr::Map(map) => self.map(column, &map.entries),
            Expr::Struct(_) => Err(ExpressionError::new(column, "messages are not supported: write a map in braces")),
            Expr::Comprehension(_) | Expr::Unspecified => Err(ExpressionError::new(column, "not an expression")),
        }
    }

    fn map(&mut self, column: usize, entries: &'p [IdedEntryExpr]) -> Lowered {
        let mut lowered = Vec::new();
        for entry in entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            let (key, value) = (self.term(&entry.key), self.term(&entry.value));
            if let Some(of) = key.of.filter(|of| !matches!(of, Type::Bool | Type::Int | Type::Uint | Type::String)) {
                let message = format!("a key of a map must be of type bool, int, uint or string, not {}", of.name());
                self.errors.push(ExpressionError::new(key.column, message));
            }
            lowered.push((key, value));
        }
        Ok(Term::new(column, Some(Type::Map), Kind::Map(lowered)))
    }

    /// Resolves a name, dotted or not, to a variable or an attribute and the fields in it.
    fn name(&self, expression: &'p IdedExpr) -> Lowered {
        let Some(name) = self.dotted(expression) else {
            return Err(ExpressionError::new(self.parsed.column(expression.id), "not a name"));
        };
        let (root, within) = name.parts.split_first().unwrap_or((&"", &[]));
        let inner = self.variables.iter().rev().position(|variable| variable == root);
        if let Some(outwards) = inner.filter(|_| !name.outer) {
            let variable = Term::new(name.column, None, Kind::Variable(outwards));
            return within.iter().try_fold(variable, |term, field| names::select(term, field));
        }
        name.resolve(self.environment)
    }

    /// The parts of a dotted name such as `a.b.c`. `None` if the expression is not a name.
    fn dotted(&self, expression: &'p IdedExpr) -> Option<Name<'p>> {
        let mut parts = Vec::new();
        let mut expression = expression;
        loop {
            match &expression.expr {
                Expr::Select(select) => {
                    parts.push(select.field.as_str());
                    expression = &select.operand;
                }
                Expr::Ident(root) => {
                    let outer = root.strip_prefix('.');
                    parts.push(outer.unwrap_or(root));
                    parts.reverse();
                    return Some(Name { column: self.parsed.column(expression.id), parts, outer: outer.is_some() });
                }
                _ => return None,
            }
        }
    }

    fn select(&mut self, expression: &'p IdedExpr, select: &'p SelectExpr) -> Lowered {
        if self.dotted(expression).is_some() {
            return self.name(expression);
        }
        let operand = self.term(&select.operand);
        names::select(operand, &select.field)
    }

    fn call(&mut self, id: u64, call: &'p CallExpr) -> Lowered {
        if let Some(operator) = functions::operator(&call.func_name) {
            let operands = self.terms(&call.args);
            return combine(operator, self.parsed.column(id), operands);
        }
        let column = self.parsed.name_column(id);
        let name = call.func_name.strip_prefix('.').unwrap_or(&call.func_name);
        match (name, call.target.as_deref(), call.args.as_slice()) {
            ("has", None, arguments) => self.has(column, arguments),
            ("dyn", None, [argument]) => Ok(Term { of: None, ..self.term(argument) }),
            (_, Some(range), arguments) if functions::comprehension(name).is_some() => {
                let kind = functions::comprehension(name).unwrap_or(Macro::Unspecified);
                self.comprehension(column, name, kind, range, arguments)
            }
            _ => self.function(column, name, call),
        }
    }

    fn function(&mut self, column: usize, name: &str, call: &'p CallExpr) -> Lowered {
        let found = functions::function(name, call.target.is_some(), call.args.len());
        // The arguments are checked too, since they may have errors of their own.
        let arguments = self.terms(call.target.as_deref().into_iter().chain(&call.args));
        combine(found.map_err(|message| ExpressionError::new(column, message))?, column, arguments)
    }

    fn has(&mut self, column: usize, arguments: &'p [IdedExpr]) -> Lowered {
        let [argument] = arguments else {
            return Err(ExpressionError::new(column, functions::wrong_count("has", 1, 1, arguments.len())));
        };
        let wrong = || ExpressionError::new(column, "`has` asks for a field: write `has(….field)`");
        let Expr::Select(_) = &argument.expr else { return Err(wrong()) };
        let errors = self.errors.len();
        let kind = match self.term(argument).kind {
            Kind::Attribute(attribute) => Kind::HasAttribute(attribute),
            Kind::Member(attribute, key) => Kind::HasMember(attribute, key),
            Kind::Select(operand, field) => Kind::Has(operand, field),
            other if self.errors.len() > errors => other,
            _ => return Err(wrong()),
        };
        Ok(Term::new(column, Some(Type::Bool), kind))
    }

    fn comprehension(
        &mut self,
        column: usize,
        name: &str,
        kind: Macro,
        range: &'p IdedExpr,
        arguments: &'p [IdedExpr],
    ) -> Lowered {
        let range = self.term(range);
        let (variable, filter, body) = match (kind, arguments) {
            (_, [variable, body]) => (variable, None, body),
            (Macro::Map, [variable, filter, body]) => (variable, Some(filter), body),
            _ => {
                let most = if kind == Macro::Map { 3 } else { 2 };
                return Err(ExpressionError::new(column, functions::wrong_count(name, 2, most, arguments.len())));
            }
        };
        let Some(variable_name) = simple_name(variable) else {
            let message = format!("the first argument of `{name}` must be the name of a variable");
            return Err(ExpressionError::new(self.parsed.column(variable.id), message));
        };
        self.variables.push(variable_name);
        let filter = filter.map(|filter| self.term(filter));
        let body = self.term(body);
        self.variables.pop();
        checked(column, name, Comprehension { kind, range, filter, body })
    }
}

fn simple_name(expression: &IdedExpr) -> Option<&str> {
    match &expression.expr {
        Expr::Ident(name) if !name.starts_with('.') => Some(name),
        _ => None,
    }
}

/// A comprehension, or an error if its parts have wrong types.
fn checked(column: usize, name: &str, parts: Comprehension) -> Lowered {
    if let Some(of) = parts.range.of.filter(|of| !matches!(of, Type::List | Type::Map)) {
        let message = format!("`{name}` goes over a list or the keys of a map, not over {}", of.name());
        return Err(ExpressionError::new(column, message));
    }
    let predicate = if parts.kind == Macro::Map { parts.filter.as_ref() } else { Some(&parts.body) };
    if let Some((term, of)) = predicate.and_then(|term| Some((term, term.of.filter(|of| *of != Type::Bool)?))) {
        let message = format!("the condition of `{name}` must be of type bool, not {}", of.name());
        return Err(ExpressionError::new(term.column, message));
    }
    let of = if matches!(parts.kind, Macro::Map | Macro::Filter) { Type::List } else { Type::Bool };
    Ok(Term::new(column, Some(of), Kind::Comprehension(Box::new(parts))))
}

/// A call. Reading one entry of an attribute becomes a term of its own, which is cheaper.
fn combine(function: Function, column: usize, mut arguments: Vec<Term>) -> Lowered {
    let known: Vec<_> = arguments.iter().map(|argument| argument.of).collect();
    let of = types::result(function, &known).map_err(|message| ExpressionError::new(column, message))?;
    let wrong = |message| ExpressionError::new(column, message);
    match (function, arguments.as_slice()) {
        (Function::Index, [container, key]) if key.text().is_some() && container.of != Some(Type::List) => {
            let key = key.text().unwrap_or_default().to_owned();
            return names::select(arguments.swap_remove(0), &key);
        }
        (Function::In, [key, Term { kind: Kind::Attribute(attribute), of: Some(Type::Map), .. }]) => {
            if let Some(key) = key.text() {
                names::check_header(*attribute, key).map_err(wrong)?;
                let kind = Kind::HasMember(*attribute, key.to_owned());
                return Ok(Term::new(column, of, kind));
            }
        }
        _ => {}
    }
    Ok(Term::new(column, of, Kind::Call(function, arguments)))
}

fn constant(literal: &LiteralValue) -> Value {
    match literal {
        LiteralValue::Null => Value::Null,
        LiteralValue::Boolean(value) => Value::Bool(*value.inner()),
        LiteralValue::Int(value) => Value::Int(*value.inner()),
        LiteralValue::UInt(value) => Value::Uint(*value.inner()),
        LiteralValue::Double(value) => Value::Double(*value.inner()),
        LiteralValue::String(value) => Value::from(value.inner()),
        LiteralValue::Bytes(value) => Value::from(value.inner()),
    }
}
