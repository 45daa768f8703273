//! Text with placeholders for the name, the mesh and the tags of a service.

use std::fmt;

use postern_base::diagnostic::quote;
use serde::{Deserialize, Serialize};

const PLACEHOLDERS: &str = "`{service}`, `{mesh}` or `{tags.NAME}`";

/// Text with placeholders. Written as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Placeholder(Placeholder),
}

/// What a placeholder stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placeholder {
    /// The name of the service.
    Service,
    /// Its mesh.
    Mesh,
    /// The value of one of its tags.
    Tag(String),
}

impl Template {
    /// Reads a template. The error is the message.
    pub fn read(text: &str) -> Result<Self, String> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((literal, behind)) = rest.split_once('{') {
            parts.push(literal_part(literal, text)?);
            let unclosed = || format!("`{{` without `}}` in {}", quote(text));
            let (inside, behind) = behind.split_once('}').ok_or_else(unclosed)?;
            parts.push(Part::Placeholder(placeholder(inside)?));
            rest = behind;
        }
        parts.push(literal_part(rest, text)?);
        parts.retain(|part| !matches!(part, Part::Literal(text) if text.is_empty()));
        Ok(Self(parts))
    }

    /// The text with each placeholder replaced. Fails with the first error of `value`.
    pub fn fill<E>(&self, value: impl Fn(&Placeholder) -> Result<String, E>) -> Result<String, E> {
        let part = |part: &Part| match part {
            Part::Literal(text) => Ok(text.clone()),
            Part::Placeholder(placeholder) => value(placeholder),
        };
        self.0.iter().map(part).collect()
    }

    /// The text with each placeholder replaced by the same sample.
    pub(super) fn sample(&self, sample: &str) -> String {
        let part = |part: &Part| match part {
            Part::Literal(text) => text.clone(),
            Part::Placeholder(_) => sample.to_owned(),
        };
        self.0.iter().map(part).collect()
    }
}

fn literal_part(literal: &str, text: &str) -> Result<Part, String> {
    if literal.contains('}') {
        return Err(format!("`}}` without `{{` in {}", quote(text)));
    }
    Ok(Part::Literal(literal.to_owned()))
}

fn placeholder(inside: &str) -> Result<Placeholder, String> {
    match (inside, inside.strip_prefix("tags.")) {
        ("service", _) => Ok(Placeholder::Service),
        ("mesh", _) => Ok(Placeholder::Mesh),
        (_, Some(tag)) if !tag.is_empty() => Ok(Placeholder::Tag(tag.to_owned())),
        _ => Err(format!("unknown placeholder {}: expected {PLACEHOLDERS}", quote(&format!("{{{inside}}}")))),
    }
}

impl TryFrom<String> for Template {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::read(&text)
    }
}

impl From<Template> for String {
    fn from(template: Template) -> Self {
        template.to_string()
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            Part::Literal(text) => f.write_str(text),
            Part::Placeholder(Placeholder::Service) => f.write_str("{service}"),
            Part::Placeholder(Placeholder::Mesh) => f.write_str("{mesh}"),
            Part::Placeholder(Placeholder::Tag(tag)) => write!(f, "{{tags.{tag}}}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_placeholders_and_writes_itself_as_it_was_read() {
        let text = "{tags.a/b}-{service}.x.{mesh}";
        let template = Template::read(text).unwrap();
        assert_eq!(template.to_string(), text);
        let value = |placeholder: &Placeholder| match placeholder {
            Placeholder::Service => Ok("s".to_owned()),
            Placeholder::Mesh => Ok("m".to_owned()),
            Placeholder::Tag(tag) if tag == "a/b" => Ok("v".to_owned()),
            Placeholder::Tag(tag) => Err(tag.clone()),
        };
        assert_eq!(template.fill(value), Ok("v-s.x.m".to_owned()));
        assert_eq!(Template::read("{tags.c}").unwrap().fill(value), Err("c".to_owned()));
    }
}
