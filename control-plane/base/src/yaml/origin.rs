//! The positions of a document's fields, for errors that are found later. Values are not kept, so that no credential
//! outlives the reading.

use super::tree::{Node, Position, Value};
use crate::diagnostic::{after_field, split_item};

/// The positions of a resource's fields. It holds no values.
#[derive(Clone)]
pub struct Origin {
    root: Located,
}

#[derive(Clone)]
struct Located {
    at: Position,
    parts: Parts,
}

#[derive(Clone)]
enum Parts {
    None,
    Items(Vec<Located>),
    Fields(Vec<(String, Located)>),
}

impl Origin {
    /// The positions of all fields in a document or a part of it.
    pub fn new(root: &Node) -> Self {
        Self { root: Located::of(root) }
    }

    /// The position of the document.
    pub fn start(&self) -> Position {
        self.root.at
    }

    /// The position of the value of a field such as `spec.routes[0].service`, or of its nearest parent that exists.
    pub fn find(&self, field: &str) -> Position {
        self.descend(field).0.at
    }

    /// Whether the field exists.
    pub fn has(&self, field: &str) -> bool {
        self.descend(field).1.is_empty()
    }

    /// The deepest part on the way to a field, and the rest of the path, which is empty if the field exists.
    fn descend<'p>(&self, field: &'p str) -> (&Located, &'p str) {
        let (mut place, mut rest) = (&self.root, field);
        while let Some((part, after)) = place.enter(rest) {
            place = part;
            rest = after;
        }
        (place, rest)
    }
}

impl Located {
    fn of(node: &Node) -> Self {
        let parts = match &node.value {
            Value::List(items) => Parts::Items(items.iter().map(Self::of).collect()),
            Value::Map(entries) => {
                Parts::Fields(entries.iter().map(|(key, node)| (key.name.clone(), Self::of(node))).collect())
            }
            _ => Parts::None,
        };
        Self { at: node.at, parts }
    }

    /// The child that a rendered path starts with, and the rest of the path. `None` if there is no such child.
    fn enter<'p>(&self, path: &'p str) -> Option<(&Self, &'p str)> {
        match &self.parts {
            Parts::None => None,
            Parts::Items(items) => {
                let (index, rest) = split_item(path)?;
                Some((items.get(index)?, rest))
            }
            Parts::Fields(fields) => fields.iter().find_map(|(name, place)| Some((place, after_field(path, name)?))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::parse;

    fn check(field: &str, expect: (usize, usize)) {
        let file = b"spec:\n  routes:\n    - name: a\n      service: b\n    - name: c\n  labels: {a.b/c: d}\n";
        let found = Origin::new(&parse(file).documents[0].root).find(field);
        assert_eq!((found.line, found.column), expect, "for `{field}`");
    }

    #[test]
    fn finds_fields() {
        check("spec", (2, 3));
        check("spec.routes", (3, 5));
        check("spec.routes[1]", (5, 7));
        check("spec.routes[0].service", (4, 16));
        check(r#"spec.labels["a.b/c"]"#, (6, 19));
    }

    #[test]
    fn falls_back_to_the_nearest_parent() {
        check("", (1, 1));
        check("metadata.name", (1, 1));
        check("spec.routes[1].service", (5, 7));
        check("spec.routes[2].service", (3, 5));
        check("spec.routes.name", (3, 5));
        check("spec.routes[0].name.deeper", (3, 13));
    }
}
