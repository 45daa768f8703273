//! Checks a document against a schema, with a limit on depth, and within the request's budget.

use std::borrow::Cow;

use super::{
    ArrayRules, Condition, DOCUMENT, Extent, NumberRules, ObjectRules, Schema, Schemas, TYPES, TextRules, Types,
    constant::{Constant, Value, compare, weight},
    decimal::Decimal,
};
use crate::{
    budget::{Budget, Exhausted, meter::work, steps},
    cel::Pattern,
    json::{self, Object},
};

/// How many schemas may be under way at once: a document's depth times a schema's own, in practice a few dozen.
pub(super) const MAX_DEPTH: usize = 160;
/// The cost of checking a value against one schema.
pub(super) const SCHEMA: u64 = 4;
/// The cost of finding a member of an object.
const LOOKUP: u64 = 4;
/// The cost of `multipleOf`, in addition to the digits: a product for each bit of an exponent.
const MULTIPLE: u64 = 100;
/// The longest pointer that is reported, in bytes.
const MAX_POINTER: usize = 256;

/// The result of a check.
#[derive(Debug, PartialEq, Eq)]
pub enum Validity {
    /// The document is valid.
    Fits,
    /// The document is invalid, with as many violations as were asked for.
    Violates(Vec<Violation>),
    /// The document is not JSON, or our strict reader refuses it.
    NotJson,
    /// The document is nested too deeply or has too many values.
    TooComplex,
    /// The budget does not allow finishing the check.
    Exhausted,
}

/// One violation, and where it is.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation {
    /// A JSON pointer (RFC 6901) into the document.
    pub pointer: String,
    /// What is expected there.
    pub message: String,
}

impl Schemas {
    /// Checks a document, and reports up to `most` violations.
    pub fn check(&self, document: &[u8], most: usize, budget: &Budget) -> Validity {
        if budget.spend(json::cost(document.len())).is_err() {
            return Validity::Exhausted;
        }
        let value = match json::parse_exact(document, DOCUMENT) {
            Ok(value) => value,
            Err(error) => match error.kind {
                json::ErrorKind::TooDeep | json::ErrorKind::TooMany => return Validity::TooComplex,
                _ => return Validity::NotJson,
            },
        };
        let mut evaluation = Evaluation {
            schemas: &self.0,
            budget,
            depth: 0,
            quiet: most == 0,
            path: Vec::new(),
            most,
            found: Vec::new(),
        };
        match evaluation.schema(0, &value) {
            Ok(true) => Validity::Fits,
            Ok(false) => Validity::Violates(evaluation.found),
            Err(Undecided::TooDeep) => Validity::TooComplex,
            Err(Undecided::Exhausted) => Validity::Exhausted,
        }
    }
}

/// Why a check cannot be finished.
enum Undecided {
    TooDeep,
    Exhausted,
}

impl From<Exhausted> for Undecided {
    fn from(Exhausted: Exhausted) -> Self {
        Self::Exhausted
    }
}

type Fits = Result<bool, Undecided>;

/// One step from a value into its parts.
enum Part<'v> {
    Member(&'v str),
    Item(usize),
}

struct Evaluation<'s, 'v> {
    schemas: &'s [Schema],
    budget: &'s Budget,
    depth: usize,
    /// Whether only the result counts, and not the violations.
    quiet: bool,
    path: Vec<Part<'v>>,
    most: usize,
    found: Vec<Violation>,
}

impl<'s, 'v> Evaluation<'s, 'v> {
    fn spend(&self, steps: u64) -> Result<(), Undecided> {
        Ok(self.budget.spend(steps)?)
    }

    /// Whether no further violation would be reported.
    fn is_settled(&self) -> bool {
        self.quiet || self.found.len() >= self.most
    }

    /// Notes a violation at the current value.
    fn violation(&mut self, message: impl FnOnce() -> String) -> bool {
        if !self.is_settled() {
            self.found.push(Violation { pointer: pointer(&self.path), message: message() });
        }
        false
    }

    fn require(&mut self, holds: bool, message: impl FnOnce() -> String) -> bool {
        holds || self.violation(message)
    }

    fn schema(&mut self, index: usize, value: &'v Value<'v>) -> Fits {
        self.spend(SCHEMA)?;
        work(1);
        let Some(schema) = self.schemas.get(index) else { return Ok(false) };
        if let Some(always) = schema.always {
            return Ok(self.require(always, || "must not be there".to_owned()));
        }
        if self.depth >= MAX_DEPTH {
            return Err(Undecided::TooDeep);
        }
        self.depth = self.depth.saturating_add(1);
        let fits = self.rules(schema, value);
        self.depth = self.depth.saturating_sub(1);
        fits
    }

    /// Checks every rule of a schema, one kind after the other.
    fn rules(&mut self, schema: &'s Schema, value: &'v Value<'v>) -> Fits {
        let rules: [fn(&mut Self, &'s Schema, &'v Value<'v>) -> Fits; 6] =
            [Self::kind, Self::constants, Self::content, Self::subschemas, Self::alternatives, Self::condition];
        let mut fits = true;
        for rule in rules {
            fits &= rule(self, schema, value)?;
            if !fits && self.is_settled() {
                return Ok(false);
            }
        }
        Ok(fits)
    }

    fn kind(&mut self, schema: &'s Schema, value: &'v Value<'v>) -> Fits {
        if let Value::Number(text) = value {
            self.budget.read(text.len())?;
        }
        Ok(self.require(schema.types.holds(value), || format!("must be of type {}", schema.types)))
    }

    fn constants(&mut self, schema: &'s Schema, value: &'v Value<'v>) -> Fits {
        let holds = schema.values.is_empty() || self.is_one_of(&schema.values, value)?;
        Ok(self.require(holds, || match schema.values.len() {
            1 => "must be the one value that is allowed".to_owned(),
            _ => "must be one of the values that are allowed".to_owned(),
        }))
    }

    fn is_one_of(&self, values: &[Constant], value: &Value<'_>) -> Fits {
        for constant in values {
            if constant.equals(value, self.budget)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn content(&mut self, schema: &'s Schema, value: &'v Value<'v>) -> Fits {
        match value {
            Value::Object(object) => schema.object.as_ref().map_or(Ok(true), |rules| self.object(rules, object, value)),
            Value::Array(items) => schema.array.as_ref().map_or(Ok(true), |rules| self.array(rules, items)),
            Value::String(text) => schema.text.as_ref().map_or(Ok(true), |rules| self.text(rules, text)),
            Value::Number(text) => schema.number.as_ref().map_or(Ok(true), |rules| self.number(rules, text)),
            Value::Null | Value::Bool(_) => Ok(true),
        }
    }

    /// `$ref` and `allOf`: their violations are this schema's own.
    fn subschemas(&mut self, schema: &'s Schema, value: &'v Value<'v>) -> Fits {
        let mut fits = true;
        for index in schema.reference.iter().chain(&schema.all_of) {
            fits &= self.schema(*index, value)?;
            if !fits && self.is_settled() {
                break;
            }
        }
        Ok(fits)
    }

    fn alternatives(&mut self, schema: &'s Schema, value: &'v Value<'v>) -> Fits {
        let mut fits = true;
        if !schema.any_of.is_empty() {
            let holds = self.count(&schema.any_of, value, 1)? > 0;
            fits &= self.require(holds, || "fits none of the schemas of which it must fit one".to_owned());
        }
        if !schema.one_of.is_empty() {
            let count = self.count(&schema.one_of, value, 2)?;
            fits &= self.require(count == 1, || match count {
                0 => "fits none of the schemas of which it must fit exactly one".to_owned(),
                _ => "fits more than one of the schemas of which it must fit exactly one".to_owned(),
            });
        }
        if let Some(not) = schema.not {
            let holds = !self.quietly(not, value)?;
            fits &= self.require(holds, || "fits a schema that it must not fit".to_owned());
        }
        Ok(fits)
    }

    fn condition(&mut self, schema: &'s Schema, value: &'v Value<'v>) -> Fits {
        let Some(Condition { test, then, otherwise }) = &schema.condition else { return Ok(true) };
        let branch = if self.quietly(*test, value)? { then } else { otherwise };
        branch.map_or(Ok(true), |branch| self.schema(branch, value))
    }

    /// How many of the schemas a value is valid against, counted up to `enough`.
    fn count(&mut self, schemas: &[usize], value: &'v Value<'v>, enough: usize) -> Result<usize, Undecided> {
        let mut count = 0_usize;
        for index in schemas {
            count = count.saturating_add(usize::from(self.quietly(*index, value)?));
            if count >= enough {
                break;
            }
        }
        Ok(count)
    }

    /// Whether a value is valid against a schema, without noting violations.
    fn quietly(&mut self, index: usize, value: &'v Value<'v>) -> Fits {
        let before = std::mem::replace(&mut self.quiet, true);
        let fits = self.schema(index, value);
        self.quiet = before;
        fits
    }

    fn object(&mut self, rules: &'s ObjectRules, object: &'v Object<'v, &'v str>, value: &'v Value<'v>) -> Fits {
        let mut fits = self.extent(rules.size, object.len(), "properties");
        for name in &rules.required {
            self.spend(LOOKUP)?;
            fits &= self.require(object.get(name).is_some(), || format!("property `{name}` is missing"));
        }
        self.spend(steps(rules.dependent_required.len()).saturating_mul(LOOKUP))?;
        for (name, required) in rules.dependent_required.iter().filter(|(name, _)| object.get(name).is_some()) {
            for other in required {
                self.spend(LOOKUP)?;
                let holds = object.get(other).is_some();
                fits &= self.require(holds, || format!("property `{other}` is missing, which `{name}` needs"));
            }
        }
        for (name, schema) in &rules.dependent_schemas {
            self.spend(LOOKUP)?;
            if object.get(name).is_some() {
                fits &= self.schema(*schema, value)?;
            }
        }
        for (name, member) in object.iter() {
            if !fits && self.is_settled() {
                return Ok(false);
            }
            fits &= self.member(rules, name, member)?;
        }
        Ok(fits)
    }

    fn member(&mut self, rules: &'s ObjectRules, name: &'v str, value: &'v Value<'v>) -> Fits {
        self.spend(LOOKUP)?;
        work(1);
        self.path.push(Part::Member(name));
        let mut fits = true;
        if let Some(names) = rules.names {
            fits &= self.name(names, name)?;
        }
        let mut known = false;
        if let Ok(at) = rules.properties.binary_search_by(|(candidate, _)| (**candidate).cmp(name))
            && let Some((_, schema)) = rules.properties.get(at)
        {
            known = true;
            fits &= self.schema(*schema, value)?;
        }
        for (pattern, schema) in &rules.patterns {
            if self.matches(pattern, name)? {
                known = true;
                fits &= self.schema(*schema, value)?;
            }
        }
        if let (false, Some(additional)) = (known, rules.additional) {
            fits &= self.schema(additional, value)?;
        }
        self.path.pop();
        Ok(fits)
    }

    /// `propertyNames`: checks one name. The name does not outlive the call, so it has an evaluation of its own.
    fn name(&mut self, schema: usize, name: &str) -> Fits {
        let value = Value::String(Cow::Borrowed(name));
        let mut inner = Evaluation {
            schemas: self.schemas,
            budget: self.budget,
            depth: self.depth,
            quiet: true,
            path: Vec::new(),
            most: 0,
            found: Vec::new(),
        };
        let fits = inner.schema(schema, &value)?;
        Ok(self.require(fits, || "has a name that is not allowed".to_owned()))
    }

    fn array(&mut self, rules: &'s ArrayRules, items: &'v [Value<'v>]) -> Fits {
        let mut fits = self.extent(rules.size, items.len(), "items");
        if rules.unique {
            let holds = self.are_unique(items)?;
            fits &= self.require(holds, || "has an item twice".to_owned());
        }
        if let Some((schema, extent)) = rules.contains {
            let mut count = 0_usize;
            for item in items {
                count = count.saturating_add(usize::from(self.quietly(schema, item)?));
            }
            fits &= self
                .require(extent.holds(count), || format!("has {count} of the items of which it must have {extent}"));
        }
        for (place, item) in items.iter().enumerate() {
            if !fits && self.is_settled() {
                return Ok(false);
            }
            if let Some(schema) = rules.prefix.get(place).copied().or(rules.items) {
                self.path.push(Part::Item(place));
                fits &= self.schema(schema, item)?;
                self.path.pop();
            }
        }
        Ok(fits)
    }

    /// `uniqueItems`: sorts the items, so that equal ones are neighbours. Sorting cannot be interrupted, so it is
    /// charged first: each item is compared with at most twice as many others as the number of items has bits, and no
    /// comparison looks at more than the smaller item has.
    fn are_unique(&mut self, items: &'v [Value<'v>]) -> Fits {
        let bits = u64::from(usize::BITS.saturating_sub(items.len().leading_zeros()));
        self.spend(weight(items).saturating_mul(bits.saturating_mul(2).saturating_add(1)))?;
        let mut sorted: Vec<_> = items.iter().collect();
        sorted.sort_unstable_by(|one, other| compare(one, other));
        let repeated = sorted.windows(2).any(|pair| matches!(pair, [one, other] if compare(one, other).is_eq()));
        Ok(!repeated)
    }

    fn text(&mut self, rules: &'s TextRules, text: &'v str) -> Fits {
        self.budget.read(text.len())?;
        let mut fits = self.extent(rules.size, text.chars().count(), "characters");
        for pattern in &rules.patterns {
            let holds = self.matches(pattern, text)?;
            fits &= self.require(holds, || "does not match the pattern".to_owned());
        }
        if let Some(format) = rules.format {
            fits &= self.require(format.fits(text), || format!("is no `{}`", format.name()));
        }
        Ok(fits)
    }

    fn matches(&mut self, pattern: &Pattern, text: &str) -> Fits {
        Ok(pattern.is_match(text, self.budget)?)
    }

    fn number(&mut self, rules: &'s NumberRules, text: &'v str) -> Fits {
        let bounds = rules.least.len().saturating_add(rules.most.len());
        self.budget.read(text.len().saturating_mul(bounds.saturating_add(1)))?;
        let number = Decimal::read(text);
        let mut fits = true;
        for bound in &rules.least {
            let holds = number > bound.number || (!bound.exclusive && number == bound.number);
            let word = if bound.exclusive { "greater than" } else { "at least" };
            fits &= self.require(holds, || format!("must be {word} {}", bound.text));
        }
        for bound in &rules.most {
            let holds = number < bound.number || (!bound.exclusive && number == bound.number);
            let word = if bound.exclusive { "less than" } else { "at most" };
            fits &= self.require(holds, || format!("must be {word} {}", bound.text));
        }
        for (divisor, text_of_divisor) in &rules.multiple_of {
            self.spend(steps(text.len()).saturating_add(MULTIPLE))?;
            work(text.len());
            let holds = number.is_multiple_of(divisor);
            fits &= self.require(holds, || format!("must be a multiple of {text_of_divisor}"));
        }
        Ok(fits)
    }

    fn extent(&mut self, extent: Extent, size: usize, what: &str) -> bool {
        self.require(extent.holds(size), || format!("must have {extent} {what}"))
    }
}

impl std::fmt::Display for Extent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.least, self.most) {
            (0, Some(most)) => write!(f, "at most {most}"),
            (least, None) => write!(f, "at least {least}"),
            (least, Some(most)) => write!(f, "{least} to {most}"),
        }
    }
}

impl Types {
    fn holds(self, value: &Value<'_>) -> bool {
        let own = match value {
            Value::Null => 1,
            Value::Bool(_) => 1 << 1,
            Value::Object(_) => 1 << 2,
            Value::Array(_) => 1 << 3,
            Value::Number(text) if self.0 & (1 << 4) == 0 && self.0 & (1 << 6) != 0 => {
                return Decimal::read(text).is_integer();
            }
            Value::Number(_) => 1 << 4,
            Value::String(_) => 1 << 5,
        };
        self.0 == 0 || self.0 & own != 0
    }
}

impl std::fmt::Display for Types {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> =
            TYPES.iter().enumerate().filter(|(bit, _)| (self.0 >> bit) & 1 == 1).map(|(_, name)| *name).collect();
        f.write_str(&names.join(" or "))
    }
}

/// The JSON pointer (RFC 6901) of a path. A long one is cut: it is made of what the caller sent.
fn pointer(path: &[Part<'_>]) -> String {
    let mut pointer = String::new();
    for part in path {
        pointer.push('/');
        match part {
            Part::Item(place) => pointer.push_str(&place.to_string()),
            Part::Member(name) => name.chars().take(MAX_POINTER).for_each(|character| match character {
                '~' => pointer.push_str("~0"),
                '/' => pointer.push_str("~1"),
                other => pointer.push(other),
            }),
        }
        if pointer.len() > MAX_POINTER {
            let end = pointer.floor_char_boundary(MAX_POINTER);
            pointer.truncate(end);
            pointer.push('…');
            break;
        }
    }
    pointer
}
