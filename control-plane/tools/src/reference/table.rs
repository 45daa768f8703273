//! Schemas as Markdown tables, for all reference pages.

use std::fmt::Write;

use postern_engine::schema::{Field, Kind, Object};

/// Appends a row for each field; fields of nested objects have their path.
pub(super) fn fields(page: &mut String, object: &Object, prefix: &str) {
    for Field { name, kind, required, default, about, .. } in object.fields {
        let path = format!("{prefix}{name}");
        let default = match (required, default) {
            (true, _) => "required".to_owned(),
            (false, Some(default)) => format!("`{default}`"),
            (false, None) => String::new(),
        };
        row(page, &[&format!("`{path}`"), &words(kind), &default, about]);
        nested(page, kind, &path);
    }
}

fn nested(page: &mut String, kind: &Kind, path: &str) {
    match kind {
        Kind::Object(object) => fields(page, object, &format!("{path}.")),
        Kind::List { item, .. } => nested(page, item, &format!("{path}[]")),
        Kind::Map { value, .. } => nested(page, value, &format!("{path}.*")),
        _ => {}
    }
}

pub(super) fn one_of(page: &mut String, object: &Object, path: &str) {
    if !object.exactly_one_of.is_empty() {
        let names: Vec<_> = object.exactly_one_of.iter().map(|name| format!("`{name}`")).collect();
        let place = if path.is_empty() { String::new() } else { format!(" in `{path}`") };
        push(page, format_args!("\nExactly one of {} must be there{place}.\n", names.join(", ")));
    }
    for field in object.fields {
        let path = if path.is_empty() { field.name.to_owned() } else { format!("{path}.{}", field.name) };
        one_of_nested(page, &field.kind, &path);
    }
}

fn one_of_nested(page: &mut String, kind: &Kind, path: &str) {
    match kind {
        Kind::Object(object) => one_of(page, object, path),
        Kind::List { item, .. } => one_of_nested(page, item, &format!("{path}[]")),
        Kind::Map { value, .. } => one_of_nested(page, value, &format!("{path}.*")),
        _ => {}
    }
}

/// The first sentence of a text, for an overview.
pub(super) fn first_sentence(text: &str) -> String {
    text.split_once(". ").map_or_else(|| text.to_owned(), |(first, _)| format!("{first}."))
}

/// A type in words.
fn words(kind: &Kind) -> String {
    let fixed = match kind {
        Kind::Text => "string",
        Kind::Name => "name",
        Kind::RouteName => "route name",
        Kind::HeaderName | Kind::EditedHeader(_) => "header name",
        Kind::HeaderValue => "header value",
        Kind::Method => "method",
        Kind::Path => "path",
        Kind::PathTemplate => "path template, such as `/users/{id}`",
        Kind::Regex => "regular expression",
        Kind::Host => "host",
        Kind::HostTemplate => "host, with placeholders such as `{service}`",
        Kind::PortTemplate => "port, or text with placeholders such as `{tags.port}`",
        Kind::Address => "IP address or DNS name",
        Kind::IpAddress => "IP address",
        Kind::Cidr => "IP address or network, such as `10.0.0.0/8`",
        Kind::Sha256 => "SHA-256 in hexadecimal digits",
        Kind::Percent => "number, 0 to 100",
        Kind::Boolean => "`true` or `false`",
        Kind::Object(_) => "mapping",
        Kind::Size => "size, such as `64KiB`",
        Kind::Duration => "duration, such as `250ms` or `5m`",
        Kind::Timeout => "duration, such as `250ms` or `5m`, or `0s` for no limit",
        Kind::EnvoyMessage => "resource of Envoy in protobuf JSON or YAML, with `@type`",
        Kind::Expression => "CEL expression",
        Kind::JsonSchema => "JSON Schema",
        Kind::JwkSet => "JSON Web Key set",
        Kind::Pem => "PEM, or `file:`",
        Kind::Params => "parameters of the policy (policies.md)",
        Kind::Integer { min, max } => return format!("whole number, {min} to {max}"),
        Kind::Choice(words) => {
            let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
            return words.join(", ");
        }
        Kind::List { item, at_least: 0 } => return format!("list of: {}", words(item)),
        Kind::List { item, at_least } => return format!("list of at least {at_least}: {}", words(item)),
        Kind::Map { key, value } => return format!("mapping of {} to {}", words(key), words(value)),
    };
    fixed.to_owned()
}

/// Appends a row to a table. A `|` in a cell is escaped, since it would end the cell.
pub(super) fn row(page: &mut String, cells: &[&str]) {
    let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    push(page, format_args!("| {} |\n", cells.join(" | ")));
}

pub(super) fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = page.write_fmt(text);
}
