//! JSON Schema, as the control plane prepares it: a list of schemas that refer to each other by index. Loading checks
//! it; `evaluate` runs it within bounds. Nothing here parses a schema. It is written by hand because libraries parse schemas
//! where they evaluate them, charge no budget, and ignore keywords that they do not know.

mod constant;
mod decimal;
mod evaluate;
mod format;
mod least;

use std::{collections::BinaryHeap, sync::Arc};

use postern_proto::plan::v1 as wire;

use self::{
    constant::Constant,
    decimal::{Decimal, Divisor},
    format::Format,
};
use crate::{cel::Pattern, json, load_error::LoadError, strings::Strings};

pub use self::evaluate::{Validity, Violation};

/// The most schemas of one step.
const MAX_SCHEMAS: usize = 10_000;

/// The limits on a document, before any schema is checked.
const DOCUMENT: json::Limits = json::Limits { depth: 64, values: 500_000 };

/// A loaded schema with all its subschemas. The first one is the root.
#[derive(Debug)]
pub struct Schemas(Vec<Schema>);

/// One schema. All of its rules must hold.
#[derive(Debug)]
struct Schema {
    always: Option<bool>,
    types: Types,
    values: Vec<Constant>,
    object: Option<Box<ObjectRules>>,
    array: Option<Box<ArrayRules>>,
    text: Option<Box<TextRules>>,
    number: Option<Box<NumberRules>>,
    all_of: Vec<usize>,
    any_of: Vec<usize>,
    one_of: Vec<usize>,
    not: Option<usize>,
    condition: Option<Condition>,
    reference: Option<usize>,
}

/// A set of types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Types(u8);

/// The names of types, in the order of their bits.
const TYPES: [&str; 7] = ["null", "boolean", "object", "array", "number", "string", "integer"];

#[derive(Debug)]
struct Condition {
    test: usize,
    then: Option<usize>,
    otherwise: Option<usize>,
}

/// The least and the most of something.
#[derive(Debug, Clone, Copy)]
struct Extent {
    least: usize,
    most: Option<usize>,
}

#[derive(Debug)]
struct ObjectRules {
    /// Sorted by name.
    properties: Vec<(Arc<str>, usize)>,
    patterns: Vec<(Pattern, usize)>,
    additional: Option<usize>,
    names: Option<usize>,
    required: Vec<Arc<str>>,
    size: Extent,
    dependent_required: Vec<(Arc<str>, Vec<Arc<str>>)>,
    dependent_schemas: Vec<(Arc<str>, usize)>,
}

#[derive(Debug)]
struct ArrayRules {
    prefix: Vec<usize>,
    items: Option<usize>,
    contains: Option<(usize, Extent)>,
    size: Extent,
    unique: bool,
}

#[derive(Debug)]
struct TextRules {
    size: Extent,
    patterns: Vec<Pattern>,
    format: Option<Format>,
}

#[derive(Debug)]
struct NumberRules {
    least: Vec<Bound>,
    most: Vec<Bound>,
    multiple_of: Vec<(Divisor, Arc<str>)>,
}

#[derive(Debug)]
struct Bound {
    number: Decimal<'static>,
    text: Arc<str>,
    exclusive: bool,
}

impl Schemas {
    pub(crate) fn load(wire: &[wire::Schema], strings: &Strings) -> Result<Self, LoadError> {
        let count = wire.len();
        if !(1..=MAX_SCHEMAS).contains(&count) {
            let (least, most) = (1, MAX_SCHEMAS as u64);
            return Err(LoadError::Range { what: "schemas", least, most, value: count as u64 });
        }
        let loader = Loader { strings, count };
        let load = |(index, schema)| loader.schema(schema).map_err(|error| error.within(format!("schema {index}")));
        Ok(Self(wire.iter().enumerate().map(load).collect::<Result<_, _>>()?))
    }
}

/// Loads the schemas of one step.
struct Loader<'a> {
    strings: &'a Strings,
    count: usize,
}

impl Loader<'_> {
    fn schema(&self, wire: &wire::Schema) -> Result<Schema, LoadError> {
        let values = wire.values.iter().map(|value| self.constant(*value)).collect::<Result<Vec<_>, _>>()?;
        Ok(Schema {
            always: wire.always,
            types: Types(
                u8::try_from(wire.types).ok().filter(|bits| bits >> TYPES.len() == 0).ok_or(LoadError::Range {
                    what: "types",
                    least: 0,
                    most: 127,
                    value: wire.types.into(),
                })?,
            ),
            values,
            object: wire.object.as_ref().map(|rules| self.object(rules).map(Box::new)).transpose()?,
            array: wire.array.as_ref().map(|rules| self.array(rules).map(Box::new)).transpose()?,
            text: wire.text.as_ref().map(|rules| self.text(rules).map(Box::new)).transpose()?,
            number: wire.number.as_ref().map(|rules| self.number(rules).map(Box::new)).transpose()?,
            all_of: self.indexes(&wire.all_of)?,
            any_of: self.indexes(&wire.any_of)?,
            one_of: self.indexes(&wire.one_of)?,
            not: self.optional(wire.not)?,
            condition: match self.optional(wire.r#if)? {
                None => None,
                Some(test) => {
                    Some(Condition { test, then: self.optional(wire.then)?, otherwise: self.optional(wire.r#else)? })
                }
            },
            reference: self.optional(wire.reference)?,
        })
    }

    fn object(&self, wire: &wire::ObjectRules) -> Result<ObjectRules, LoadError> {
        // A heap sorts with far less code than `sort_unstable`, and this is done once a plan.
        let properties = BinaryHeap::from(self.properties(&wire.properties)?).into_sorted_vec();
        let pattern = |(name, schema): (Arc<str>, usize)| Ok((pattern(&name)?, schema));
        let dependency =
            |wire: &wire::object_rules::Dependency| Ok((self.strings.get(wire.name)?, self.names(&wire.required)?));
        Ok(ObjectRules {
            properties,
            patterns: self.properties(&wire.patterns)?.into_iter().map(pattern).collect::<Result<_, LoadError>>()?,
            additional: self.optional(wire.additional)?,
            names: self.optional(wire.names)?,
            required: self.names(&wire.required)?,
            size: Extent::load(wire.least, wire.most),
            dependent_required: wire.dependent_required.iter().map(dependency).collect::<Result<_, LoadError>>()?,
            dependent_schemas: self.properties(&wire.dependent_schemas)?,
        })
    }

    fn array(&self, wire: &wire::ArrayRules) -> Result<ArrayRules, LoadError> {
        let extent = Extent::load(Some(wire.contains_least.unwrap_or(1)), wire.contains_most);
        Ok(ArrayRules {
            prefix: self.indexes(&wire.prefix)?,
            items: self.optional(wire.items)?,
            contains: self.optional(wire.contains)?.map(|schema| (schema, extent)),
            size: Extent::load(wire.least, wire.most),
            unique: wire.unique,
        })
    }

    fn text(&self, wire: &wire::TextRules) -> Result<TextRules, LoadError> {
        let format = match wire::TextFormat::try_from(wire.format) {
            Ok(wire::TextFormat::Unspecified) => None,
            Ok(wire::TextFormat::DateTime) => Some(Format::DateTime),
            Ok(wire::TextFormat::Date) => Some(Format::Date),
            Ok(wire::TextFormat::Uuid) => Some(Format::Uuid),
            Ok(wire::TextFormat::Ipv4) => Some(Format::Ipv4),
            Ok(wire::TextFormat::Ipv6) => Some(Format::Ipv6),
            Err(_) => return Err(LoadError::Missing("format")),
        };
        let pattern = |index: &u32| self.strings.get(*index).and_then(|text| pattern(&text));
        let patterns = wire.patterns.iter().map(pattern).collect::<Result<_, _>>()?;
        Ok(TextRules { size: Extent::load(wire.least, wire.most), patterns, format })
    }

    fn number(&self, wire: &wire::NumberRules) -> Result<NumberRules, LoadError> {
        let bounds = |wire: &[wire::number_rules::Bound]| {
            let bound = |bound: &wire::number_rules::Bound| {
                let (number, text) = self.decimal(bound.number)?;
                Ok(Bound { number, text, exclusive: bound.exclusive })
            };
            wire.iter().map(bound).collect::<Result<Vec<_>, LoadError>>()
        };
        let divisor = |index: &u32| {
            let (number, text) = self.decimal(*index)?;
            match Divisor::of(&number) {
                Some(divisor) => Ok((divisor, text)),
                None => Err(LoadError::Unfit { what: "divisor", text }),
            }
        };
        let multiple_of = wire.multiple_of.iter().map(divisor).collect::<Result<_, LoadError>>()?;
        Ok(NumberRules { least: bounds(&wire.least)?, most: bounds(&wire.most)?, multiple_of })
    }

    fn decimal(&self, index: u32) -> Result<(Decimal<'static>, Arc<str>), LoadError> {
        let text = self.strings.get(index)?;
        match Constant::read(&text) {
            Some(Constant::Number(number)) => Ok((number, text)),
            _ => Err(LoadError::Unfit { what: "JSON number", text }),
        }
    }

    fn constant(&self, index: u32) -> Result<Constant, LoadError> {
        let text = self.strings.get(index)?;
        Constant::read(&text).ok_or(LoadError::Unfit { what: "JSON value", text })
    }

    fn properties(&self, wire: &[wire::object_rules::Property]) -> Result<Vec<(Arc<str>, usize)>, LoadError> {
        wire.iter().map(|property| Ok((self.strings.get(property.name)?, self.index(property.schema)?))).collect()
    }

    fn names(&self, wire: &[u32]) -> Result<Vec<Arc<str>>, LoadError> {
        wire.iter().map(|name| self.strings.get(*name)).collect()
    }

    fn indexes(&self, wire: &[u32]) -> Result<Vec<usize>, LoadError> {
        wire.iter().map(|field| self.index(*field)).collect()
    }

    fn index(&self, field: u32) -> Result<usize, LoadError> {
        self.optional(field)?.ok_or(LoadError::Missing("schema"))
    }

    /// The index of a schema from a field that is 0 for none.
    fn optional(&self, field: u32) -> Result<Option<usize>, LoadError> {
        let Some(index) = field.checked_sub(1) else { return Ok(None) };
        let found = usize::try_from(index).ok().filter(|index| *index < self.count);
        found.map(Some).ok_or(LoadError::Index { what: "schema", index, size: self.count })
    }
}

impl Extent {
    fn load(least: Option<u32>, most: Option<u32>) -> Self {
        let size = |size: u32| usize::try_from(size).unwrap_or(usize::MAX);
        Self { least: least.map_or(0, size), most: most.map(size) }
    }

    fn holds(self, size: usize) -> bool {
        size >= self.least && self.most.is_none_or(|most| size <= most)
    }
}

fn pattern(text: &Arc<str>) -> Result<Pattern, LoadError> {
    Pattern::compile(text).map_err(|_| LoadError::Unfit { what: "regular expression", text: Arc::clone(text) })
}
