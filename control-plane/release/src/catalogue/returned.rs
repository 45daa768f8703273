//! Values that were hidden when a resource was shown, and come back with it. Each is replaced by the value that is stored
//! at the same place of the same resource. One that cannot be told is an error that names its field: it never becomes a
//! value.
//!
//! Items of a list are the same if they look the same when shown. An item that was edited is known by its name
//! ([`NAMES`]), or by its place if all others are where they were. So a list that is re-ordered keeps the value of each
//! item, and no item takes the value of another.

use std::collections::BTreeMap;

use postern_base::{
    diagnostic::{Diagnostic, Diagnostics, Path},
    yaml::{self, Node, Position},
};
use postern_model::HIDDEN;
use serde_json::Value;

use super::{Catalogue, Entry, entry};
use crate::store::Document;

/// The fields that tell an item of a list from the others.
const NAMES: [&str; 7] = ["name", "policy", "keyId", "kid", "username", "id", "host"];

/// Replaces the hidden values of documents by what `stored` has. Reports every value that it cannot tell.
pub fn restore(documents: &mut [Document], stored: &Catalogue) -> Result<(), Diagnostics> {
    let mut errors = Vec::new();
    for document in documents.iter_mut().filter(|document| has_hidden(&document.text)) {
        // What is no resource, or cannot be read, is reported by whoever reads it.
        let Some((key, new)) = entry(document) else { continue };
        let parsed = yaml::parse(&document.text);
        let Some(root) = parsed.documents.first().map(|found| &found.root) else { continue };
        let mut search = Search { is_stored: false, place: Vec::new(), kept: Vec::new(), errors: Vec::new() };
        match stored.get(&key) {
            Some(old) => search.resource(&new, old),
            None => search.value(&new.written, None, &Path::Root),
        }
        let Search { kept, errors: mut found, .. } = search;
        let mut edits = Vec::new();
        for (place, value) in kept {
            let Some(node) = node_at(root, &place) else { continue };
            match span(&document.text, node.at) {
                Some(span) => edits.push((span, value)),
                None => found.push((field_of(&place), "it cannot be replaced where it stands: write it as plain text")),
            }
        }
        errors.extend(found.into_iter().map(|(field, why)| {
            let at = find(root, &field).unwrap_or(root.at);
            diagnostic(document, at, &key.label(), field, why)
        }));
        apply(&mut document.text, edits);
    }
    Diagnostics::reject(errors)
}

/// Whether a text may have a hidden value.
fn has_hidden(text: &[u8]) -> bool {
    text.windows(HIDDEN.len()).any(|part| part == HIDDEN.as_bytes())
}

/// A step on the way to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Item(usize),
}

/// A stored value, and how it was shown.
type Stored<'a> = (&'a Value, &'a Value);

struct Search {
    /// Whether the resource is in force.
    is_stored: bool,
    place: Vec<Step>,
    /// The values to be kept, by place.
    kept: Vec<(Vec<Step>, Value)>,
    /// The fields whose values are not known, and why.
    errors: Vec<(String, &'static str)>,
}

const NEW: &str = "the resource is not in force, so that it has no value to keep";
const ABSENT: &str = "no value is stored at this field";
const MANY: &str = "several stored values look like this one, and not all of them are here";
const NONE: &str = "no stored item of this list is known to be this one";

impl Search {
    fn resource(&mut self, new: &Entry, old: &Entry) {
        self.is_stored = true;
        let shown = old.shown();
        self.value(&new.written, Some((&old.written, &shown)), &Path::Root);
    }

    fn value(&mut self, new: &Value, old: Option<Stored<'_>>, path: &Path<'_>) {
        match new {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let old = old.and_then(|(stored, shown)| Some((stored.get(name)?, shown.get(name)?)));
                    self.place.push(Step::Field(name.clone()));
                    self.value(value, old, &path.field(name));
                    self.place.pop();
                }
            }
            Value::Array(items) => self.list(items, old, path),
            Value::String(text) if text == HIDDEN => match old {
                Some((stored, shown)) if shown == new && stored != new && !stored.is_object() && !stored.is_array() => {
                    self.kept.push((self.place.clone(), stored.clone()));
                }
                _ => self.unknown(path, if self.is_stored { ABSENT } else { NEW }),
            },
            _ => {}
        }
    }

    fn list(&mut self, new: &[Value], old: Option<Stored<'_>>, path: &Path<'_>) {
        let lists = old.and_then(|(stored, shown)| Some((stored.as_array()?, shown.as_array()?)));
        let same = lists.map(|(stored, shown)| pair(new, stored, shown)).unwrap_or_default();
        for (index, item) in new.iter().enumerate().filter(|(_, item)| is_hidden_in(item)) {
            self.place.push(Step::Item(index));
            let path = path.item(index);
            match (same.get(&index), lists) {
                (Some(Ok(other)), Some((stored, shown))) => {
                    self.value(item, stored.get(*other).zip(shown.get(*other)), &path);
                }
                (Some(Err(why)), _) => self.all_unknown(item, &path, why),
                _ => self.all_unknown(item, &path, if self.is_stored { ABSENT } else { NEW }),
            }
            self.place.pop();
        }
    }

    fn all_unknown(&mut self, value: &Value, path: &Path<'_>, why: &'static str) {
        match value {
            Value::Object(fields) => {
                fields.iter().for_each(|(name, value)| self.all_unknown(value, &path.field(name), why));
            }
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(index, value)| self.all_unknown(value, &path.item(index), why));
            }
            Value::String(text) if text == HIDDEN => self.unknown(path, why),
            _ => {}
        }
    }

    fn unknown(&mut self, path: &Path<'_>, why: &'static str) {
        self.errors.push((path.to_string(), why));
    }
}

/// For each item with hidden values, the stored item that it is, or why that is not known.
fn pair(new: &[Value], stored: &[Value], shown: &[Value]) -> BTreeMap<usize, Result<usize, &'static str>> {
    let mut pairs = BTreeMap::new();
    let hidden: Vec<_> = new.iter().enumerate().filter(|(_, item)| is_hidden_in(item)).collect();
    for (index, item) in &hidden {
        let alike = shown.iter().enumerate().filter(|(_, other)| other == item);
        let candidates: Vec<_> = alike.map(|(index, _)| index).collect();
        let rank = hidden.iter().filter(|(other, same)| other < index && same == item).count();
        let count = hidden.iter().filter(|(_, same)| same == item).count();
        let values: Vec<_> = candidates.iter().filter_map(|index| stored.get(*index)).collect();
        let is_one = values.windows(2).all(|two| two.first() == two.last());
        let found = match candidates.len() {
            0 => continue,
            known if known == count => candidates.get(rank).copied().ok_or(MANY),
            // Whichever is meant, it is this value.
            known if known > count && is_one => candidates.get(rank).copied().ok_or(MANY),
            _ => Err(MANY),
        };
        pairs.insert(*index, found);
    }
    let taken: Vec<usize> = pairs.values().filter_map(|found| found.ok()).collect();
    for (index, item) in &hidden {
        if !pairs.contains_key(index) {
            pairs.insert(*index, edited(*index, item, (new, shown), &taken));
        }
    }
    pairs
}

/// The stored item of which an item is an edited form: the one of its name, or the one at its place if all others are
/// where they were.
fn edited(
    index: usize,
    item: &Value,
    (new, shown): (&[Value], &[Value]),
    taken: &[usize],
) -> Result<usize, &'static str> {
    let names = |item: &Value| -> BTreeMap<&str, Value> {
        NAMES.iter().filter_map(|name| Some((*name, item.get(name)?.clone()))).collect()
    };
    let name = names(item);
    if name.is_empty() {
        let others = new.iter().zip(shown).enumerate().filter(|(place, _)| *place != index);
        let is_alone = new.len() == shown.len() && others.into_iter().all(|(_, (new, shown))| new == shown);
        let there = shown.get(index).is_some_and(|there| names(there).is_empty());
        return if is_alone && there && !taken.contains(&index) { Ok(index) } else { Err(NONE) };
    }
    let of_it = |(place, other): &(usize, &Value)| !taken.contains(place) && names(other) == name;
    let mut candidates = shown.iter().enumerate().filter(of_it).map(|(place, _)| place);
    let namesakes = new.iter().filter(|other| names(other) == name).count();
    match (candidates.next(), candidates.next()) {
        (Some(one), None) if namesakes == 1 => Ok(one),
        (None, _) => Err(NONE),
        _ => Err(MANY),
    }
}

fn is_hidden_in(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.values().any(is_hidden_in),
        Value::Array(items) => items.iter().any(is_hidden_in),
        Value::String(text) => text == HIDDEN,
        _ => false,
    }
}

fn node_at<'n>(root: &'n Node, place: &[Step]) -> Option<&'n Node> {
    place.iter().try_fold(root, |node, step| match step {
        Step::Field(name) => node.get(name),
        Step::Item(index) => node.items().get(*index),
    })
}

fn field_of(place: &[Step]) -> String {
    use postern_base::diagnostic::{push_field, push_item};
    place.iter().fold(String::new(), |path, step| match step {
        Step::Field(name) => push_field(path, name),
        Step::Item(index) => push_item(path, *index),
    })
}

/// The position of a field by its rendered path.
fn find(root: &Node, field: &str) -> Option<Position> {
    fn walk(node: &Node, path: &Path<'_>, field: &str) -> Option<Position> {
        if path.to_string() == field {
            return Some(node.at);
        }
        let inside = node.entries().iter().find_map(|(key, node)| walk(node, &path.field(&key.name), field));
        inside
            .or_else(|| node.items().iter().enumerate().find_map(|(index, node)| walk(node, &path.item(index), field)))
    }
    walk(root, &Path::Root, field)
}

fn diagnostic(document: &Document, at: Position, resource: &str, field: String, why: &str) -> Diagnostic {
    Diagnostic {
        file: document.file.clone(),
        line: at.line.saturating_add(document.line).saturating_sub(1),
        column: at.column,
        resource: Some(resource.to_owned()),
        field: Some(field),
        message: format!("`{HIDDEN}` cannot be kept: {why}; write the value itself"),
    }
}

/// The bytes of a hidden value at a position: plain or quoted, on one line.
fn span(text: &[u8], at: Position) -> Option<(usize, usize)> {
    let text = std::str::from_utf8(text).ok()?;
    let start: usize = text.split_inclusive('\n').take(at.line.checked_sub(1)?).map(str::len).sum();
    let line = text.get(start..)?;
    let column = line.char_indices().nth(at.column.checked_sub(1)?)?.0;
    let rest = line.get(column..)?;
    let forms = [HIDDEN.to_owned(), format!("\"{HIDDEN}\""), format!("'{HIDDEN}'")];
    let form = forms.iter().find(|form| rest.starts_with(form.as_str()))?;
    let start = start.checked_add(column)?;
    Some((start, start.checked_add(form.len())?))
}

/// Replaces spans by values. JSON on one line is YAML wherever a scalar may stand, and leaves all lines where they are.
fn apply(text: &mut Vec<u8>, mut edits: Vec<((usize, usize), Value)>) {
    edits.sort_by_key(|((start, _), _)| std::cmp::Reverse(*start));
    for ((start, end), value) in edits {
        if start <= end && end <= text.len() {
            text.splice(start..end, value.to_string().into_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::split;
    use postern_model::File;

    fn documents(text: &str) -> Vec<Document> {
        split(&[File { name: "f.yaml".to_owned(), bytes: text.as_bytes().to_vec() }])
    }

    fn consumer(name: &str, spec: &str) -> String {
        format!("apiVersion: postern/v1\nkind: Consumer\nmetadata: {{ name: {name} }}\nspec: {spec}\n")
    }

    /// What becomes of `new` beside `stored`: the spec, or the errors.
    #[track_caller]
    fn check(stored: &str, new: &str, expect: Result<&str, &[&str]>) {
        let stored = Catalogue::of(&documents(&consumer("bob", stored)));
        let mut written = documents(&consumer("bob", new));
        let found = restore(&mut written, &stored).map_err(|errors| errors.to_string());
        let found = found.map(|()| entry(&written[0]).unwrap().1.written["spec"].to_string());
        let expect =
            expect.map(|spec| entry(&documents(&consumer("bob", spec))[0]).unwrap().1.written["spec"].to_string());
        match (found, expect) {
            (Ok(found), Ok(expect)) => assert_eq!(found, expect),
            (Err(errors), Err(parts)) => {
                assert_eq!(errors.lines().count(), parts.len(), "{errors}");
                for (line, part) in errors.lines().zip(parts) {
                    assert!(line.contains(part), "{line}");
                }
            }
            (found, expect) => panic!("{found:?}, expected {expect:?}"),
        }
    }

    #[test]
    fn keeps_what_comes_back() {
        check("{ apiKeys: [{ key: one }] }", "{ apiKeys: [{ key: (hidden) }] }", Ok("{ apiKeys: [{ key: one }] }"));
        check(
            "{ basicAuth: { username: u, password: 'p \"q' }, groups: [a] }",
            "{ basicAuth: { username: u, password: \"(hidden)\" }, groups: [b] }",
            Ok("{ basicAuth: { username: u, password: 'p \"q' }, groups: [b] }"),
        );
        check(
            "{ apiKeys: [{ key: one }, { key: two }] }",
            "{ apiKeys: [{ key: new }, { key: (hidden) }, { key: '(hidden)' }] }",
            Ok("{ apiKeys: [{ key: new }, { key: one }, { key: two }] }"),
        );
    }

    #[test]
    fn keeps_the_value_of_each_item_of_a_list_that_is_re_ordered() {
        let stored = "{ hmac: [{ keyId: a, secret: sa }, { keyId: b, secret: sb }] }";
        check(
            stored,
            "{ hmac: [{ keyId: b, secret: (hidden) }, { keyId: a, secret: (hidden) }] }",
            Ok("{ hmac: [{ keyId: b, secret: sb }, { keyId: a, secret: sa }] }"),
        );
        check(stored, "{ hmac: [{ keyId: b, secret: (hidden) }] }", Ok("{ hmac: [{ keyId: b, secret: sb }] }"));
        let renamed = "{ hmac: [{ keyId: c, secret: (hidden) }, { keyId: b, secret: (hidden) }] }";
        check(
            stored,
            renamed,
            Err(&["f.yaml:4:36: Consumer `bob`: spec.hmac[0].secret: `(hidden)` cannot be kept: no stored item"]),
        );
        let twice = "{ hmac: [{ keyId: a, secret: (hidden) }, { keyId: a, secret: (hidden) }] }";
        check(stored, twice, Err(&["spec.hmac[0].secret", "spec.hmac[1].secret"]));
    }

    #[test]
    fn takes_no_value_for_another() {
        let stored = "{ apiKeys: [{ key: one }, { key: two }] }";
        // One is gone, and nobody knows which.
        check(
            stored,
            "{ apiKeys: [{ key: (hidden) }] }",
            Err(&["spec.apiKeys[0].key: `(hidden)` cannot be kept: several"]),
        );
        let more = "{ apiKeys: [{ key: (hidden) }, { key: (hidden) }, { key: (hidden) }] }";
        check(stored, more, Err(&["apiKeys[0]", "apiKeys[1]", "apiKeys[2]"]));
        // Elsewhere, nothing is stored.
        check(
            stored,
            "{ basicAuth: { username: u, password: (hidden) } }",
            Err(&["spec.basicAuth.password: `(hidden)` cannot be kept: no value is stored"]),
        );
        check(
            "{ apiKeys: [{ sha256: '00' }] }",
            "{ apiKeys: [{ key: (hidden) }] }",
            Err(&["no value is stored at this field"]),
        );
        check("{ groups: [a] }", "{ groups: [(hidden)] }", Err(&["spec.groups[0]"]));
        // What is stored is no value either.
        check("{ apiKeys: [{ key: (hidden) }] }", "{ apiKeys: [{ key: (hidden) }] }", Err(&["no value is stored"]));
    }

    #[test]
    fn a_new_resource_has_nothing_to_keep() {
        let stored = Catalogue::of(&documents(&consumer("bob", "{ apiKeys: [{ key: one }] }")));
        let mut renamed = documents(&consumer("robert", "{ apiKeys: [{ key: (hidden) }] }"));
        let errors = restore(&mut renamed, &stored).unwrap_err().to_string();
        let expect = "f.yaml:4:26: Consumer `robert`: spec.apiKeys[0].key: `(hidden)` cannot be kept: the resource is not in \
                      force, so that it has no value to keep; write the value itself";
        assert_eq!(errors, expect);
    }

    #[test]
    fn an_item_that_was_edited_is_known_by_its_name_or_its_place() {
        let step = |header: &str, value: &str| {
            format!(
                "{{ request: [{{ policy: headers, params: {{ set: {{ authorization: {value}, x-a: {header} }} }} }}, {{ policy: requestId }}] }}"
            )
        };
        check(&step("b", "secret"), &step("c", "(hidden)"), Ok(&step("c", "secret")));
        check(
            "{ apiKeys: [{ key: one, note: a }] }",
            "{ apiKeys: [{ key: (hidden), note: b }] }",
            Ok("{ apiKeys: [{ key: one, note: b }] }"),
        );
    }

    #[test]
    fn leaves_lines_and_comments_where_they_are() {
        let pem = "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n";
        let stored = format!("{{ key: {} }}", Value::from(pem));
        let stored = Catalogue::of(&documents(&consumer("bob", &stored)));
        let text = "# a\napiVersion: postern/v1\nkind: Consumer\nmetadata: { name: bob }\nspec:\n  key: (hidden) # it is\n  b: c\n";
        let mut written = documents(text);
        restore(&mut written, &stored).unwrap();
        let after = String::from_utf8(written[0].text.clone()).unwrap();
        assert_eq!(after.lines().count(), text.lines().count());
        assert!(after.contains(" # it is\n  b: c\n"), "{after}");
        assert_eq!(entry(&written[0]).unwrap().1.written["spec"]["key"], pem);
    }
}
