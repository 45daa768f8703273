//! Paths of fields in errors, such as `spec.request[0].params.header`. Names that would be ambiguous are quoted:
//! `metadata.labels["example.com/team"]`.

use std::fmt;

/// A path as a linked list on the stack, which is rendered only for an error.
#[derive(Debug, Clone, Copy)]
pub enum Path<'a> {
    /// The root of a document.
    Root,
    /// A field of the mapping at the given path.
    Field(&'a Path<'a>, &'a str),
    /// An item of the list at the given path, by its index.
    Item(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    /// The path of a field of the mapping at this path.
    pub fn field(&'a self, name: &'a str) -> Self {
        Path::Field(self, name)
    }

    /// The path of an item of the list at this path, by its index from 0.
    pub fn item(&'a self, index: usize) -> Self {
        Path::Item(self, index)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render())
    }
}

impl Path<'_> {
    fn render(&self) -> String {
        match self {
            Path::Root => String::new(),
            Path::Field(parent, name) => push_field(parent.render(), name),
            Path::Item(parent, index) => push_item(parent.render(), *index),
        }
    }
}

/// Appends a field to a rendered path.
pub fn push_field(mut path: String, name: &str) -> String {
    if is_simple(name) {
        path.push_str(if path.is_empty() { "" } else { "." });
        path.push_str(name);
        path
    } else {
        format!("{path}[{name:?}]")
    }
}

/// Appends an item to a rendered path.
pub fn push_item(path: String, index: usize) -> String {
    format!("{path}[{index}]")
}

/// The rest of a rendered path after the field `name` at its start. `None` if the path starts otherwise.
pub fn after_field<'p>(path: &'p str, name: &str) -> Option<&'p str> {
    let rest = if is_simple(name) {
        path.strip_prefix('.').unwrap_or(path).strip_prefix(name)?
    } else {
        path.strip_prefix(&format!("[{name:?}]"))?
    };
    (rest.is_empty() || rest.starts_with(['.', '['])).then_some(rest)
}

/// The index at the start of a rendered path, and the rest. `None` if the path starts otherwise.
pub fn split_item(path: &str) -> Option<(usize, &str)> {
    let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
    Some((index.parse().ok()?, rest))
}

fn is_simple(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_fields_and_items() {
        assert_eq!(Path::Root.to_string(), "");
        assert_eq!(
            Path::Root.field("spec").field("request").item(0).field("policy").to_string(),
            "spec.request[0].policy"
        );
    }

    #[test]
    fn quotes_names_that_would_be_ambiguous() {
        assert_eq!(Path::Root.field("labels").field("a.b/c").field("d").to_string(), r#"labels["a.b/c"].d"#);
        assert_eq!(Path::Root.field("").to_string(), r#"[""]"#);
    }

    #[test]
    fn takes_a_rendered_path_apart() {
        assert_eq!(after_field("spec.routes[0]", "spec"), Some(".routes[0]"));
        assert_eq!(after_field(".routes[0]", "routes"), Some("[0]"));
        assert_eq!(after_field(".routes[0]", "route"), None);
        assert_eq!(after_field(r#"["a.b"].c"#, "a.b"), Some(".c"));
        assert_eq!(split_item("[12].name"), Some((12, ".name")));
        assert_eq!(split_item(".name"), None);
        assert_eq!(split_item("[x]"), None);
    }
}
