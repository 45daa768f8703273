//! Merging field by field: the first part that sets a field wins, objects are merged recursively, lists and scalars are
//! taken whole. The schema says which fields are objects; other JSON objects are taken whole.

use std::collections::BTreeMap;

use postern_base::diagnostic::push_field;
use postern_engine::schema::{Kind, Object};
use serde::Serialize;
use serde_json::{Map, Value as Json};

/// The origin of a merged field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Provided {
    /// The index of the part whose value is used.
    pub by: usize,
    /// The indices of the parts whose values are overruled.
    pub over: Vec<usize>,
}

/// The origins of merged fields, by path. Fields inside an object that was taken whole are covered by the object's
/// path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields(BTreeMap<String, Provided>);

impl Fields {
    /// The origin of a field, or of the nearest object that contains it. `None` if neither is recorded.
    pub fn provider(&self, path: &str) -> Option<&Provided> {
        let within =
            |known: &str| path.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
        self.0.iter().filter(|(known, _)| within(known)).max_by_key(|(known, _)| known.len()).map(|(_, found)| found)
    }

    /// Whether no origins are recorded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All recorded paths with their origins.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Provided)> {
        self.0.iter().map(|(path, provided)| (path.as_str(), provided))
    }

    /// Records that the value of a part is used at a path.
    pub(super) fn provide(&mut self, path: String, by: usize) {
        self.0.insert(path, Provided { by, over: Vec::new() });
    }

    /// Records that the value of a part is overruled at a path.
    pub(super) fn overrule(&mut self, path: &str, part: usize) {
        let known = self.provider(path).map(|provided| provided.by);
        let entry = self.0.entry(path.to_owned());
        entry.or_insert_with(|| Provided { by: known.unwrap_or_default(), over: Vec::new() }).over.push(part);
    }
}

/// Merges parts, which are given by priority with their indices. Returns the merged object and the origins of its
/// fields.
pub(super) fn merge(schema: &Object, parts: impl IntoIterator<Item = (usize, Map<String, Json>)>) -> (Json, Fields) {
    let (mut merged, mut fields) = (Map::new(), Fields::default());
    for (index, part) in parts {
        merge_into(&mut merged, &mut fields, schema, "", (index, part));
    }
    (Json::Object(merged), fields)
}

/// Merges one more part, with its index, into an object whose origins are recorded below a path.
pub(super) fn merge_into(
    merged: &mut Map<String, Json>,
    fields: &mut Fields,
    schema: &Object,
    path: &str,
    (index, part): (usize, Map<String, Json>),
) {
    Merging { part: index, fields }.object(merged, part, schema, path);
}

struct Merging<'f> {
    part: usize,
    fields: &'f mut Fields,
}

impl Merging<'_> {
    fn object(&mut self, into: &mut Map<String, Json>, part: Map<String, Json>, schema: &Object, path: &str) {
        for (name, value) in part {
            let field = push_field(path.to_owned(), &name);
            let rival = schema.exactly_one_of.iter().find(|other| {
                schema.exactly_one_of.contains(&name.as_str()) && **other != name && into.contains_key(**other)
            });
            if let Some(rival) = rival {
                self.fields.overrule(&push_field(path.to_owned(), rival), self.part);
                continue;
            }
            let kind = schema.fields.iter().find(|field| field.name == name).map(|field| &field.kind);
            self.entry(into, name, value, kind, field);
        }
    }

    fn entry(&mut self, into: &mut Map<String, Json>, name: String, value: Json, kind: Option<&Kind>, field: String) {
        match (into.get_mut(&name), value) {
            (None, value) => {
                into.insert(name, value);
                self.fields.provide(field, self.part);
            }
            (Some(Json::Object(there)), Json::Object(part)) => match kind {
                Some(Kind::Object(schema)) => self.object(there, part, schema, &field),
                Some(Kind::Map { key, value }) => self.map(there, part, key, value, &field),
                _ => self.fields.overrule(&field, self.part),
            },
            (Some(_), _) => self.fields.overrule(&field, self.part),
        }
    }

    fn map(&mut self, into: &mut Map<String, Json>, part: Map<String, Json>, key: &Kind, value: &Kind, path: &str) {
        for (name, item) in part {
            // Names of headers are compared without case.
            let same = |there: &&String| match key {
                Kind::HeaderName | Kind::EditedHeader(_) => there.eq_ignore_ascii_case(&name),
                _ => **there == name,
            };
            let name = into.keys().find(same).cloned().unwrap_or(name);
            let field = push_field(path.to_owned(), &name);
            self.entry(into, name, item, Some(value), field);
        }
    }
}

#[cfg(test)]
mod tests {
    use postern_engine::schema::Field;
    use serde_json::json;

    use super::*;

    const INNER: Object = Object {
        fields: &[Field::optional("a", Kind::Text, ""), Field::optional("b", Kind::Text, "")],
        exactly_one_of: &[],
    };
    const SCHEMA: Object = Object {
        fields: &[
            Field::optional("text", Kind::Text, ""),
            Field::optional("inner", Kind::Object(&INNER), ""),
            Field::optional("list", Kind::List { item: &Kind::Text, at_least: 0 }, ""),
            Field::optional("headers", Kind::Map { key: &Kind::HeaderName, value: &Kind::Text }, ""),
            Field::optional("opaque", Kind::JsonSchema, ""),
            Field::optional("left", Kind::Text, ""),
            Field::optional("right", Kind::Text, ""),
        ],
        exactly_one_of: &["left", "right"],
    };

    fn check(parts: &[Json], expect: Json, origins: &[(&str, usize, &[usize])]) {
        let parts = parts.iter().enumerate().map(|(index, part)| (index, part.as_object().unwrap().clone()));
        let (merged, fields) = merge(&SCHEMA, parts);
        assert_eq!(merged, expect);
        let found: Vec<_> = fields.iter().map(|(path, field)| (path, field.by, field.over.as_slice())).collect();
        assert_eq!(found, origins);
    }

    #[test]
    fn the_first_that_sets_a_field_counts() {
        check(
            &[json!({"text": "x"}), json!({"text": "y", "list": ["p"]}), json!({"list": ["q", "r"]})],
            json!({"text": "x", "list": ["p"]}),
            &[("list", 1, &[2]), ("text", 0, &[1])],
        );
    }

    #[test]
    fn objects_merge_deep() {
        check(
            &[json!({"inner": {"a": "x"}}), json!({"inner": {"a": "y", "b": "z"}})],
            json!({"inner": {"a": "x", "b": "z"}}),
            &[("inner", 0, &[]), ("inner.a", 0, &[1]), ("inner.b", 1, &[])],
        );
    }

    #[test]
    fn what_only_looks_like_an_object_is_taken_whole() {
        check(
            &[json!({"opaque": {"type": "string"}}), json!({"opaque": {"maxLength": 3}})],
            json!({"opaque": {"type": "string"}}),
            &[("opaque", 0, &[1])],
        );
    }

    #[test]
    fn headers_are_equal_in_any_case() {
        check(
            &[json!({"headers": {"X-A": "1"}}), json!({"headers": {"x-a": "2", "x-b": "3"}})],
            json!({"headers": {"X-A": "1", "x-b": "3"}}),
            &[("headers", 0, &[]), ("headers.X-A", 0, &[1]), ("headers.x-b", 1, &[])],
        );
    }

    #[test]
    fn of_fields_that_exclude_each_other_the_first_stays() {
        check(&[json!({"left": "x"}), json!({"right": "y"})], json!({"left": "x"}), &[("left", 0, &[1])]);
    }

    #[test]
    fn knows_who_provides_what_is_inside_of_something() {
        let parts = [json!({"inner": {"a": "x"}}), json!({"inner": {"b": "z"}, "list": ["q"]})];
        let parts = parts.iter().enumerate().map(|(index, part)| (index, part.as_object().unwrap().clone()));
        let (_, fields) = merge(&SCHEMA, parts);
        let by = |path: &str| fields.provider(path).map(|provided| provided.by);
        assert_eq!((by("inner.a"), by("inner.b"), by("list[0]"), by("listing")), (Some(0), Some(1), Some(1), None));
    }
}
