//! Lowers `jsonSchema`: a user's schema becomes a list of schemas that refer to each other by index. Whatever is not
//! enforced is an error at its field, so that no rule is silently ignored.

use std::collections::HashMap;

use postern_base::diagnostic::{push_field, push_item, quote, suggestion};
use postern_engine::cel::Pattern;
use postern_proto::plan::v1::{
    ArrayRules, JsonSchema, NumberRules, ObjectRules, Schema, TextFormat, TextRules,
    number_rules::Bound,
    object_rules::{Dependency, Property},
    step::Policy,
};
use serde_json::{Map, Value as Json};

use super::{Lowering, Place, ecma};
use crate::params::JsonSchemaParams;

/// The types, in the order of their bits in the plan.
const TYPES: [&str; 7] = ["null", "boolean", "object", "array", "number", "string", "integer"];
const FORMATS: [(&str, TextFormat); 5] = [
    ("date-time", TextFormat::DateTime),
    ("date", TextFormat::Date),
    ("uuid", TextFormat::Uuid),
    ("ipv4", TextFormat::Ipv4),
    ("ipv6", TextFormat::Ipv6),
];
/// Keywords whose value is a schema, a list of schemas, or a map of them.
const SCHEMA_KEYWORDS: [&str; 8] =
    ["additionalProperties", "propertyNames", "items", "contains", "not", "if", "then", "else"];
const LIST_KEYWORDS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
const MAP_KEYWORDS: [&str; 4] = ["$defs", "properties", "patternProperties", "dependentSchemas"];
const RULE_KEYWORDS: [&str; 23] = [
    "type",
    "enum",
    "const",
    "required",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "minContains",
    "maxContains",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "$ref",
    "$comment",
];
/// Annotations, which do not affect validation.
const ANNOTATIONS: [&str; 7] = ["title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"];
const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";
/// The largest number of schemas that may apply to one value through references.
const MAX_REFERENCES: usize = 100;
/// The largest number of digits in a divisor.
const DIVISOR_DIGITS: usize = 18;

impl Lowering {
    pub(super) fn json_schema(&mut self, place: &Place<'_>, params: &JsonSchemaParams) -> Policy {
        let mut found = Found::default();
        found.collect(&params.schema, "", "params.schema".to_owned());
        let mut errors = Vec::new();
        let mut schemas = Vec::with_capacity(found.schemas.len());
        for part in &found.schemas {
            schemas.push(Writer { lowering: self, found: &found, part, errors: &mut errors }.schema());
        }
        if errors.is_empty() {
            errors.extend(endless(&schemas, &found));
        }
        for (field, message) in errors {
            self.error(place, &field, message);
        }
        let content_types = &params.content_types;
        for (index, text) in content_types.iter().enumerate().filter(|(_, text)| !is_media_type(text)) {
            let message = format!("expected a media type such as `application/json`, found {}", quote(text));
            self.error(place, &format!("params.contentTypes[{index}]"), message);
        }
        Policy::JsonSchema(JsonSchema {
            schemas,
            content_types: content_types.iter().map(|text| self.string(&text.to_ascii_lowercase())).collect(),
            allow_empty: params.allow_empty,
            status: params.status,
            most_errors: params.max_errors,
        })
    }
}

fn is_media_type(text: &str) -> bool {
    let token =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "!#$&-^_.+*".contains(c));
    text.split_once('/').is_some_and(|(kind, subtype)| token(kind) && token(subtype)) && text.matches('*').count() <= 1
}

/// A schema inside of the user's schema.
struct Part<'a> {
    schema: &'a Json,
    /// Its path in errors.
    field: String,
    root: bool,
}

/// All schemas in the user's schema, the root first, and their indices by JSON pointer.
#[derive(Default)]
struct Found<'a> {
    schemas: Vec<Part<'a>>,
    by_pointer: HashMap<String, usize>,
    by_place: HashMap<*const Json, usize>,
}

impl<'a> Found<'a> {
    fn collect(&mut self, schema: &'a Json, pointer: &str, field: String) {
        let root = self.schemas.is_empty();
        self.by_pointer.insert(pointer.to_owned(), self.schemas.len());
        self.by_place.insert(schema, self.schemas.len());
        self.schemas.push(Part { schema, field: field.clone(), root });
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            let pointer = format!("{pointer}/{keyword}");
            let field = push_field(field.clone(), keyword);
            match value {
                value if SCHEMA_KEYWORDS.contains(&keyword.as_str()) => self.collect(value, &pointer, field),
                Json::Array(items) if LIST_KEYWORDS.contains(&keyword.as_str()) => {
                    for (index, item) in items.iter().enumerate() {
                        self.collect(item, &format!("{pointer}/{index}"), push_item(field.clone(), index));
                    }
                }
                Json::Object(entries) if MAP_KEYWORDS.contains(&keyword.as_str()) => {
                    for (name, item) in entries {
                        self.collect(item, &format!("{pointer}/{}", escape(name)), push_field(field.clone(), name));
                    }
                }
                _ => {}
            }
        }
    }

    /// The number of a schema in the plan; 0 if it is none.
    fn at(&self, schema: &Json) -> u32 {
        self.by_place.get(&std::ptr::from_ref(schema)).map_or(0, |index| number(*index))
    }
}

/// The number in the plan of the schema with this index.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1)
}

/// Escapes a name for a JSON pointer (RFC 6901).
fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Lowers one schema.
struct Writer<'w, 'a> {
    lowering: &'w mut Lowering,
    found: &'w Found<'a>,
    part: &'w Part<'a>,
    errors: &'w mut Vec<(String, String)>,
}

impl Writer<'_, '_> {
    fn schema(mut self) -> Schema {
        match self.part.schema {
            Json::Bool(always) => Schema { always: Some(*always), ..Schema::default() },
            Json::Object(keywords) => {
                self.unsupported(keywords);
                self.keywords(keywords)
            }
            _ => {
                self.errors
                    .push((self.part.field.clone(), "expected a JSON Schema (a mapping), or `true` or `false`".into()));
                Schema::default()
            }
        }
    }

    fn error(&mut self, keyword: &str, message: impl Into<String>) {
        self.errors.push((push_field(self.part.field.clone(), keyword), message.into()));
    }

    fn unsupported(&mut self, keywords: &Map<String, Json>) {
        let known = [&SCHEMA_KEYWORDS[..], &LIST_KEYWORDS, &MAP_KEYWORDS, &RULE_KEYWORDS, &ANNOTATIONS].concat();
        for (keyword, value) in keywords {
            match keyword.as_str() {
                "$schema" if self.part.root => match value.as_str().map(|text| text.trim_end_matches('#')) {
                    Some(DRAFT) => {}
                    _ => self.error(keyword, format!("expected `{DRAFT}`: other drafts are not supported")),
                },
                "$id" if self.part.root => {}
                keyword if known.contains(&keyword) => {}
                keyword => {
                    let near = suggestion(keyword, known.iter().copied());
                    self.error(keyword, format!("keyword {} is not supported{near}", quote(keyword)));
                }
            }
        }
        for (keyword, other) in
            [("then", "if"), ("else", "if"), ("minContains", "contains"), ("maxContains", "contains")]
        {
            if keywords.contains_key(keyword) && !keywords.contains_key(other) {
                self.error(keyword, format!("means nothing without `{other}`"));
            }
        }
    }

    fn keywords(&mut self, of: &Map<String, Json>) -> Schema {
        let mut values = Vec::new();
        if let Some(listed) = of.get("enum") {
            match listed.as_array().filter(|listed| !listed.is_empty()) {
                Some(listed) => values = listed.iter().map(|value| self.constant("enum", value)).collect(),
                None => self.error("enum", "expected a list of at least 1 value"),
            }
        }
        let constant = of.get("const").map(|value| self.constant("const", value));
        if let (Some(constant), false) = (constant, values.is_empty()) {
            values.retain(|value| *value == constant);
            if values.is_empty() {
                self.error("const", "is none of the values of `enum`: nothing would fit");
            }
        } else {
            values.extend(constant);
        }
        Schema {
            always: None,
            types: self.types(of),
            values,
            object: self.object(of),
            array: self.array(of),
            text: self.text(of),
            number: self.number(of),
            all_of: self.list(of, "allOf"),
            any_of: self.list(of, "anyOf"),
            one_of: self.list(of, "oneOf"),
            not: self.one(of, "not"),
            r#if: self.one(of, "if"),
            then: self.one(of, "then"),
            r#else: self.one(of, "else"),
            reference: self.reference(of),
        }
    }

    fn types(&mut self, of: &Map<String, Json>) -> u32 {
        let names: Vec<&Json> = match of.get("type") {
            None => return 0,
            Some(Json::Array(names)) if !names.is_empty() => names.iter().collect(),
            Some(name) => vec![name],
        };
        let mut types = 0;
        for name in names {
            match name.as_str().and_then(|name| TYPES.iter().position(|known| *known == name)) {
                Some(bit) => types |= 1 << bit,
                None => {
                    let known: Vec<_> = TYPES.iter().map(|name| format!("`{name}`")).collect();
                    self.error("type", format!("expected {}, or a list of them", known.join(", ")));
                }
            }
        }
        types
    }

    fn object(&mut self, of: &Map<String, Json>) -> Option<ObjectRules> {
        let rules = ObjectRules {
            properties: self.map(of, "properties"),
            patterns: self.pattern_properties(of),
            additional: self.one(of, "additionalProperties"),
            names: self.one(of, "propertyNames"),
            required: of.get("required").map(|names| self.names("required", names)).unwrap_or_default(),
            least: self.size(of, "minProperties"),
            most: self.size(of, "maxProperties"),
            dependent_required: self.dependent_required(of),
            dependent_schemas: self.map(of, "dependentSchemas"),
        };
        (rules != ObjectRules::default()).then_some(rules)
    }

    fn pattern_properties(&mut self, of: &Map<String, Json>) -> Vec<Property> {
        let mut properties = self.map(of, "patternProperties");
        let written = of.get("patternProperties").and_then(Json::as_object).into_iter().flat_map(Map::keys);
        for (property, written) in properties.iter_mut().zip(written) {
            property.name = self.pattern("patternProperties", written).unwrap_or(property.name);
        }
        properties
    }

    /// The index of a translated pattern. `None`, with an error, if it is invalid.
    fn pattern(&mut self, keyword: &str, written: &str) -> Option<u32> {
        let translated = ecma::translate(written).and_then(|text| Pattern::compile(&text).map(|_| text));
        match translated {
            Ok(text) => Some(self.lowering.string(&text)),
            Err(error) => {
                self.error(keyword, format!("{} is no regular expression: {error}", quote(written)));
                None
            }
        }
    }

    fn dependent_required(&mut self, of: &Map<String, Json>) -> Vec<Dependency> {
        let keyword = "dependentRequired";
        let Some(value) = of.get(keyword) else { return Vec::new() };
        let Some(entries) = value.as_object() else {
            self.error(keyword, "expected a mapping of names to lists of names");
            return Vec::new();
        };
        let mut lowered = Vec::with_capacity(entries.len());
        for (name, names) in entries {
            lowered.push(Dependency { name: self.lowering.string(name), required: self.names(keyword, names) });
        }
        lowered
    }

    fn array(&mut self, of: &Map<String, Json>) -> Option<ArrayRules> {
        let rules = ArrayRules {
            prefix: self.list(of, "prefixItems"),
            items: self.one(of, "items"),
            contains: self.one(of, "contains"),
            contains_least: self.size(of, "minContains"),
            contains_most: self.size(of, "maxContains"),
            least: self.size(of, "minItems"),
            most: self.size(of, "maxItems"),
            unique: match of.get("uniqueItems") {
                None => false,
                Some(Json::Bool(unique)) => *unique,
                Some(_) => {
                    self.error("uniqueItems", "expected `true` or `false`");
                    false
                }
            },
        };
        (rules != ArrayRules::default()).then_some(rules)
    }

    fn text(&mut self, of: &Map<String, Json>) -> Option<TextRules> {
        let mut patterns = Vec::new();
        if let Some(pattern) = of.get("pattern") {
            match pattern.as_str() {
                Some(written) => patterns.extend(self.pattern("pattern", written)),
                None => self.error("pattern", "expected a string"),
            }
        }
        let mut format = TextFormat::Unspecified;
        if let Some(written) = of.get("format") {
            match FORMATS.iter().find(|(name, _)| written.as_str() == Some(name)) {
                Some((_, known)) => format = *known,
                None => {
                    let known: Vec<_> = FORMATS.iter().map(|(name, _)| format!("`{name}`")).collect();
                    self.error("format", format!("expected {}: other formats are not supported", known.join(", ")));
                }
            }
        }
        let rules = TextRules {
            least: self.size(of, "minLength"),
            most: self.size(of, "maxLength"),
            patterns,
            format: format.into(),
        };
        (rules != TextRules::default()).then_some(rules)
    }

    fn number(&mut self, of: &Map<String, Json>) -> Option<NumberRules> {
        let mut bounds = |inclusive: &str, exclusive: &str| {
            let mut bound = |keyword: &str, exclusive| {
                let number = self.decimal(keyword, of.get(keyword)?)?;
                Some(Bound { number: self.lowering.string(&number), exclusive })
            };
            [bound(inclusive, false), bound(exclusive, true)].into_iter().flatten().collect::<Vec<_>>()
        };
        let least = bounds("minimum", "exclusiveMinimum");
        let most = bounds("maximum", "exclusiveMaximum");
        let rules = NumberRules { least, most, multiple_of: self.multiple_of(of).into_iter().collect() };
        (rules != NumberRules::default()).then_some(rules)
    }

    fn multiple_of(&mut self, of: &Map<String, Json>) -> Option<u32> {
        let value = of.get("multipleOf")?;
        let text = self.decimal("multipleOf", value)?;
        let digits = text.bytes().filter(u8::is_ascii_digit).skip_while(|digit| *digit == b'0').count();
        if value.as_f64().is_none_or(|number| number <= 0.0) || digits > DIVISOR_DIGITS {
            self.error("multipleOf", format!("expected a number greater than 0 of at most {DIVISOR_DIGITS} digits"));
            return None;
        }
        Some(self.lowering.string(&text))
    }

    /// A number in decimal notation. YAML numbers were doubles on the way here, so a large one is refused: it may
    /// differ from what the user wrote.
    fn decimal(&mut self, keyword: &str, value: &Json) -> Option<String> {
        match value {
            Json::Number(number) if !is_inexact(number) => Some(
                number.as_i64().map_or_else(|| number.as_f64().unwrap_or(0.0).to_string(), |number| number.to_string()),
            ),
            Json::Number(_) => {
                self.error(keyword, "a number this large would not be kept exactly");
                None
            }
            _ => {
                self.error(keyword, "expected a number");
                None
            }
        }
    }

    fn constant(&mut self, keyword: &str, value: &Json) -> u32 {
        if has_inexact(value) {
            self.error(keyword, "a number this large would not be kept exactly");
        }
        self.lowering.string(&value.to_string())
    }

    fn size(&mut self, of: &Map<String, Json>, keyword: &str) -> Option<u32> {
        let size = of.get(keyword)?.as_u64().and_then(|size| u32::try_from(size).ok());
        if size.is_none() {
            self.error(keyword, format!("expected a whole number from 0 to {}", u32::MAX));
        }
        size
    }

    fn names(&mut self, keyword: &str, value: &Json) -> Vec<u32> {
        let names = value.as_array().map(|names| names.iter().map(Json::as_str).collect::<Option<Vec<_>>>());
        match names.flatten() {
            Some(names) => names.into_iter().map(|name| self.lowering.string(name)).collect(),
            None => {
                self.error(keyword, "expected a list of strings");
                Vec::new()
            }
        }
    }

    fn one(&self, of: &Map<String, Json>, keyword: &str) -> u32 {
        of.get(keyword).map_or(0, |schema| self.found.at(schema))
    }

    fn list(&mut self, of: &Map<String, Json>, keyword: &str) -> Vec<u32> {
        let Some(value) = of.get(keyword) else { return Vec::new() };
        match value.as_array().filter(|items| !items.is_empty()) {
            Some(items) => items.iter().map(|schema| self.found.at(schema)).collect(),
            None => {
                self.error(keyword, "expected a list of at least 1 schema");
                Vec::new()
            }
        }
    }

    fn map(&mut self, of: &Map<String, Json>, keyword: &str) -> Vec<Property> {
        let Some(value) = of.get(keyword) else { return Vec::new() };
        let Some(entries) = value.as_object() else {
            self.error(keyword, "expected a mapping of names to schemas");
            return Vec::new();
        };
        let property = |(name, schema): (&String, &Json)| Property {
            name: self.lowering.string(name),
            schema: self.found.at(schema),
        };
        entries.iter().map(property).collect()
    }

    fn reference(&mut self, of: &Map<String, Json>) -> u32 {
        if of.get("$defs").is_some_and(|definitions| !definitions.is_object()) {
            self.error("$defs", "expected a mapping of names to schemas");
        }
        let Some(value) = of.get("$ref") else { return 0 };
        let pointer = value.as_str().and_then(|text| text.strip_prefix('#')).and_then(decode);
        match pointer.and_then(|pointer| self.found.by_pointer.get(&pointer)) {
            Some(index) => number(*index),
            None => {
                self.error("$ref", "points to no schema in this one: expected `#`, or a path such as `#/$defs/name`");
                0
            }
        }
    }
}

/// Decodes `%` escapes in a URI's fragment. `None` if they are invalid.
fn decode(fragment: &str) -> Option<String> {
    let mut parts = fragment.split('%');
    let mut decoded = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        decoded.extend(hex::decode(digits).ok()?);
        decoded.extend(rest.as_bytes());
    }
    String::from_utf8(decoded).ok()
}

fn has_inexact(value: &Json) -> bool {
    match value {
        Json::Number(number) => is_inexact(number),
        Json::Array(items) => items.iter().any(has_inexact),
        Json::Object(entries) => entries.values().any(has_inexact),
        _ => false,
    }
}

/// Whether a double may stand for a different number in the user's text.
fn is_inexact(number: &serde_json::Number) -> bool {
    number.as_i64().is_none() && number.as_f64().is_none_or(|number| number.abs() >= 9_007_199_254_740_992.0)
}

/// The field and the message of a cycle of references that does not descend into the document, and so never ends.
fn endless(schemas: &[Schema], found: &Found<'_>) -> Option<(String, String)> {
    let mut settled = vec![false; schemas.len()];
    let start = (0..schemas.len()).find(|start| returns(*start, schemas, &mut settled, &mut Vec::new()))?;
    let field = found.schemas.get(start)?.field.clone();
    let most = MAX_REFERENCES;
    Some((field, format!("refers to itself without end, or through more than {most} schemas")))
}

fn returns(index: usize, schemas: &[Schema], settled: &mut [bool], under_way: &mut Vec<usize>) -> bool {
    if under_way.contains(&index) || under_way.len() > MAX_REFERENCES {
        return true;
    }
    if settled.get(index).copied().unwrap_or(true) {
        return false;
    }
    under_way.push(index);
    let endless = schemas
        .get(index)
        .is_some_and(|schema| in_place(schema).any(|next| returns(next, schemas, settled, under_way)));
    under_way.pop();
    if let Some(settled) = settled.get_mut(index) {
        *settled = true;
    }
    endless
}

/// The schemas that apply to the same value as this one.
fn in_place(schema: &Schema) -> impl Iterator<Item = usize> {
    let Schema { all_of, any_of, one_of, not, r#if, then, r#else, reference, object, .. } = schema;
    let single = [*not, *r#if, *then, *r#else, *reference];
    let dependent = object.iter().flat_map(|object| object.dependent_schemas.iter().map(|property| property.schema));
    let all = all_of.iter().chain(any_of).chain(one_of).copied().chain(single).chain(dependent).collect::<Vec<_>>();
    all.into_iter().filter_map(|field| usize::try_from(field.checked_sub(1)?).ok())
}
