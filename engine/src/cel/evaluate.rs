//! Evaluates a loaded expression. Attributes are asked for when a node needs them, and not before.

use std::sync::Arc;

use postern_proto::plan::v1::expression::{Function, Macro};

use super::{
    attribute::{Attribute, AttributeError, Attributes},
    budget::Budget,
    call::{call, matches, no_overload},
    error::{ErrorKind, EvaluationError},
    key::Key,
    node::{Comprehension, Kind, Node},
    operator,
    value::{Map, Value},
};
use crate::budget;

/// The value of an expression.
type Evaluated = Result<Value, EvaluationError>;

/// One evaluation: the attributes, the budget, and the variables of the enclosing comprehensions.
pub(super) struct Evaluation<'a> {
    attributes: &'a dyn Attributes,
    budget: Budget<'a>,
    variables: Vec<Value>,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(attributes: &'a dyn Attributes, budget: &'a budget::Budget) -> Self {
        Self { attributes, budget: Budget::new(budget), variables: Vec::new() }
    }

    pub(super) fn value(&mut self, node: &Node) -> Evaluated {
        let at = |kind: ErrorKind| kind.at(node.column);
        self.budget.node().map_err(at)?;
        match &node.kind {
            Kind::Constant(value) => Ok(value.clone()),
            Kind::Attribute(attribute) => self.attribute(*attribute).map_err(at),
            Kind::HasAttribute(attribute) => self.has_attribute(*attribute).map_err(at),
            Kind::Member(attribute, key) => self.member(*attribute, key).map_err(at),
            Kind::HasMember(attribute, key) => self.has_member(*attribute, key).map_err(at),
            Kind::Select(operand, field) => self.value(operand).and_then(|value| select(&value, field).map_err(at)),
            Kind::Has(operand, field) => self.value(operand).and_then(|value| has(&value, field).map_err(at)),
            Kind::List(elements) => self.list(elements, node.column),
            Kind::Map(entries) => self.map(entries),
            Kind::And(operands) => self.logic(Function::And, operands),
            Kind::Or(operands) => self.logic(Function::Or, operands),
            Kind::Conditional(operands) => self.conditional(operands),
            Kind::Matches(subject, pattern) => match self.value(subject)? {
                Value::String(text) => matches(&text, pattern, &mut self.budget).map_err(at),
                other => Err(at(no_overload(Function::Matches, &[other, Value::from("")]))),
            },
            Kind::Call(function, arguments) => self.call(*function, arguments, node.column),
            Kind::Comprehension(comprehension) => self.comprehension(comprehension, node.column),
            Kind::Variable(outwards) => Ok(self.variable(*outwards)),
        }
    }

    fn attribute(&mut self, attribute: Attribute) -> Result<Value, ErrorKind> {
        match self.attributes.attribute(attribute) {
            Ok(value) => self.taken(value),
            Err(AttributeError::TooCostly) => Err(ErrorKind::TooCostly),
            Err(error) => Err(ErrorKind::Attribute { attribute, error }),
        }
    }

    /// Charges for a value that was copied for the evaluation, and returns it.
    fn taken(&mut self, value: Value) -> Result<Value, ErrorKind> {
        match &value {
            Value::String(text) => self.budget.read(text.len())?,
            Value::Bytes(bytes) => self.budget.read(bytes.len())?,
            _ => {}
        }
        Ok(value)
    }

    fn has_attribute(&self, attribute: Attribute) -> Result<Value, ErrorKind> {
        match self.attributes.attribute(attribute) {
            Err(AttributeError::Absent) => Ok(Value::Bool(false)),
            // What is there but is no text is there all the same.
            Ok(_) | Err(AttributeError::NotUtf8) => Ok(Value::Bool(true)),
            Err(AttributeError::TooCostly) => Err(ErrorKind::TooCostly),
            Err(error) => Err(ErrorKind::Attribute { attribute, error }),
        }
    }

    fn member(&mut self, attribute: Attribute, key: &Arc<str>) -> Result<Value, ErrorKind> {
        match self.attributes.member(attribute, key) {
            Ok(Some(found)) => self.taken(found),
            Ok(None) => Err(ErrorKind::NoSuchKey(Some(Arc::clone(key)))),
            Err(AttributeError::TooCostly) => Err(ErrorKind::TooCostly),
            Err(error) => Err(ErrorKind::Member { attribute, key: Arc::clone(key), error }),
        }
    }

    fn has_member(&self, attribute: Attribute, key: &Arc<str>) -> Result<Value, ErrorKind> {
        match self.attributes.member(attribute, key) {
            Ok(found) => Ok(Value::Bool(found.is_some())),
            Err(AttributeError::Absent) => Ok(Value::Bool(false)),
            Err(AttributeError::NotUtf8) => Ok(Value::Bool(true)),
            Err(AttributeError::TooCostly) => Err(ErrorKind::TooCostly),
            Err(error) => Err(ErrorKind::Member { attribute, key: Arc::clone(key), error }),
        }
    }

    fn list(&mut self, elements: &[Node], column: u32) -> Evaluated {
        self.budget.make_elements(elements.len()).map_err(|kind| kind.at(column))?;
        elements.iter().map(|element| self.value(element)).collect::<Result<Arc<[_]>, _>>().map(Value::List)
    }

    fn map(&mut self, entries: &[(Node, Node)]) -> Evaluated {
        let mut map = Map::default();
        for (key_node, value) in entries {
            let key = self.value(key_node)?;
            let key = Key::from_value(&key).ok_or_else(|| ErrorKind::NotAKey(key.value_type()).at(key_node.column))?;
            self.budget.make_elements(2).map_err(|kind| kind.at(key_node.column))?;
            if !map.insert(key, self.value(value)?) {
                return Err(ErrorKind::RepeatedKey.at(key_node.column));
            }
        }
        Ok(map.into())
    }

    /// Evaluates a node to a truth value. Any other type is an error of `operator`.
    fn truth(&mut self, operator: Function, node: &Node) -> Result<bool, EvaluationError> {
        match self.value(node)? {
            Value::Bool(value) => Ok(value),
            other => Err(no_overload(operator, &[other]).at(node.column)),
        }
    }

    /// `&&` and `||`: if one side decides, an error of the other does not matter (langdef, "Logical Operators").
    fn logic(&mut self, operator: Function, [one, other]: &[Node; 2]) -> Evaluated {
        let deciding = operator == Function::Or;
        let first = self.truth(operator, one);
        match first {
            Ok(value) if value == deciding => return Ok(Value::Bool(deciding)),
            Err(error) if error.is_final() => return Err(error),
            _ => {}
        }
        let second = self.truth(operator, other)?;
        if second == deciding { Ok(Value::Bool(deciding)) } else { first.map(Value::Bool) }
    }

    fn conditional(&mut self, [condition, then, otherwise]: &[Node; 3]) -> Evaluated {
        let holds = self.truth(Function::Conditional, condition)?;
        self.value(if holds { then } else { otherwise })
    }

    /// Calls a function. The arguments are on the stack: a call itself allocates nothing.
    fn call(&mut self, function: Function, arguments: &[Node], column: u32) -> Evaluated {
        let result = match arguments {
            [one] => call(function, &[self.value(one)?], &mut self.budget),
            [one, two] => call(function, &[self.value(one)?, self.value(two)?], &mut self.budget),
            _ => {
                let values = arguments.iter().map(|node| self.value(node)).collect::<Result<Vec<_>, _>>()?;
                call(function, &values, &mut self.budget)
            }
        };
        result.map_err(|kind| kind.at(column))
    }

    /// The variable of an enclosing comprehension. Loading has checked that there is one.
    fn variable(&self, outwards: usize) -> Value {
        self.variables.iter().rev().nth(outwards).cloned().unwrap_or(Value::Null)
    }

    fn comprehension(&mut self, comprehension: &Comprehension, column: u32) -> Evaluated {
        let range = self.value(&comprehension.range)?;
        let of = range.value_type();
        let elements = operator::elements(range, &mut self.budget).map_err(|kind| kind.at(column))?;
        let missing = ErrorKind::NoSuchOverload { function: macro_name(comprehension.kind), types: vec![of] };
        let elements = elements.ok_or_else(|| missing.at(column))?;
        match comprehension.kind {
            Macro::All => self.quantify(Function::And, &elements, &comprehension.body),
            Macro::Exists => self.quantify(Function::Or, &elements, &comprehension.body),
            Macro::ExistsOne => self.exists_one(&elements, &comprehension.body),
            Macro::Filter => self.filter(&elements, &comprehension.body, column),
            Macro::Map | Macro::Unspecified => self.transform(&elements, comprehension, column),
        }
    }

    /// Evaluates a node with one more variable.
    fn with<T>(&mut self, element: &Value, evaluate: impl FnOnce(&mut Self) -> T) -> T {
        self.variables.push(element.clone());
        let result = evaluate(self);
        self.variables.pop();
        result
    }

    /// `all` is a long `&&` and `exists` a long `||`: an element that decides makes up for errors of others.
    fn quantify(&mut self, operator: Function, elements: &[Value], body: &Node) -> Evaluated {
        let deciding = operator == Function::Or;
        let mut result = Ok(Value::Bool(!deciding));
        for element in elements {
            match self.with(element, |within| within.truth(operator, body)) {
                Ok(value) if value == deciding => return Ok(Value::Bool(deciding)),
                Ok(_) => {}
                Err(error) if error.is_final() => return Err(error),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    /// Unlike `exists`, it keeps an error even if an element holds (langdef, "Macros").
    fn exists_one(&mut self, elements: &[Value], body: &Node) -> Evaluated {
        let mut found: usize = 0;
        for element in elements {
            let holds = self.with(element, |within| within.truth(Function::Conditional, body))?;
            found = found.saturating_add(usize::from(holds));
        }
        Ok(Value::Bool(found == 1))
    }

    fn filter(&mut self, elements: &[Value], body: &Node, column: u32) -> Evaluated {
        let mut kept = Vec::new();
        for element in elements {
            if self.with(element, |within| within.truth(Function::Conditional, body))? {
                self.budget.make_elements(1).map_err(|kind| kind.at(column))?;
                kept.push(element.clone());
            }
        }
        Ok(kept.into())
    }

    fn transform(&mut self, elements: &[Value], comprehension: &Comprehension, column: u32) -> Evaluated {
        let mut made = Vec::new();
        for element in elements {
            let taken = |within: &mut Self| match &comprehension.filter {
                Some(filter) => within.truth(Function::Conditional, filter),
                None => Ok(true),
            };
            if self.with(element, taken)? {
                self.budget.make_elements(1).map_err(|kind| kind.at(column))?;
                made.push(self.with(element, |within| within.value(&comprehension.body))?);
            }
        }
        Ok(made.into())
    }
}

fn macro_name(kind: Macro) -> &'static str {
    match kind {
        Macro::All => "all",
        Macro::Exists => "exists",
        Macro::ExistsOne => "exists_one",
        Macro::Filter => "filter",
        Macro::Map | Macro::Unspecified => "map",
    }
}

fn select(operand: &Value, field: &Key) -> Result<Value, ErrorKind> {
    let Value::Map(map) = operand else { return Err(not_a_map(operand)) };
    map.get(field).cloned().ok_or_else(|| match field {
        Key::String(name) => ErrorKind::NoSuchKey(Some(Arc::clone(name))),
        _ => ErrorKind::NoSuchKey(None),
    })
}

fn has(operand: &Value, field: &Key) -> Result<Value, ErrorKind> {
    let Value::Map(map) = operand else { return Err(not_a_map(operand)) };
    Ok(Value::Bool(map.get(field).is_some()))
}

fn not_a_map(operand: &Value) -> ErrorKind {
    ErrorKind::NoSuchOverload { function: "a field", types: vec![operand.value_type()] }
}
