//! The reference of the built-in policies, `docs/policies.md`, from the very schemas that parameters are checked against.

use std::fmt::Write;

use postern_engine::{
    Phase,
    policy::SCHEMAS,
    schema::{Ending, Field, Kind, Object, PolicySchema},
};

const INTRODUCTION: &str = "\
<!-- Written by `cargo xtask docs` from the schemas in engine/src/policy. Do not edit. -->

# The built-in policies

A policy stands as a step in a chain of a `RoutePolicy`. Besides `policy` and `params`, every step takes `name` (what logs call it), `when` (a CEL
condition), `onFailure` (`deny`, `continue` or `skipRemaining`, for a step that could not decide), `mode: shadow` (report, but enforce
nothing) and `denyWith` (`status`, `headers` and
`body` of its refusals, in words of your own; what is left out stays as below).

Answers that a policy gives by itself are problem documents (RFC 9457) unless it says otherwise. The *reason* is what the access log
shows; callers do not see it. A step that reads the body answers 413 `body_too_large` past `maxBodySize`.
";

/// The whole page.
pub fn policies() -> String {
    let mut schemas: Vec<_> = SCHEMAS.iter().collect();
    schemas.sort_by_key(|schema| schema.name);
    let mut page = INTRODUCTION.to_owned();
    page.push_str("\n| policy | chain | what it does |\n|---|---|---|\n");
    for schema in &schemas {
        let (name, anchor) = (schema.name, schema.name.to_ascii_lowercase());
        row(&mut page, &[&format!("[`{name}`](#{anchor})"), &phases(schema), &first_sentence(schema.about)]);
    }
    for schema in schemas {
        section(&mut page, schema);
    }
    page
}

/// The example of a policy as a whole resource, for a route called `api`.
pub fn example(schema: &PolicySchema) -> String {
    let phase = schema.phases.first().map_or("request", |phase| phase_name(*phase));
    let steps: String = schema.example.lines().map(|line| format!("    {line}\n")).collect();
    let name = schema.name.to_ascii_lowercase();
    format!(
        "apiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{ name: {name} }}\nspec:\n  \
         targetRef: {{ kind: HTTPRoute, name: api }}\n  {phase}:\n{steps}"
    )
}

fn section(page: &mut String, schema: &PolicySchema) {
    push(page, format_args!("\n## {}\n\n{}\n\nStands in: {}.\n", schema.name, schema.about, phases(schema)));
    if schema.params.fields.is_empty() {
        page.push_str("\nIt takes no parameters.\n");
    } else {
        page.push_str("\n| parameter | type | default | meaning |\n|---|---|---|---|\n");
        parameters(page, &schema.params, "");
        one_of(page, &schema.params, "");
    }
    if !schema.endings.is_empty() {
        page.push_str("\n| status | reason | when |\n|---|---|---|\n");
        for Ending { status, reason, when } in schema.endings {
            row(page, &[status, &format!("`{reason}`"), when]);
        }
    }
    push(page, format_args!("\n```yaml\n{}```\n", example(schema)));
}

/// A row for each field, those of nested objects under their path.
fn parameters(page: &mut String, object: &Object, prefix: &str) {
    for Field { name, kind, required, default, about } in object.fields {
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
        Kind::Object(object) => parameters(page, object, &format!("{path}.")),
        Kind::List { item, .. } => nested(page, item, &format!("{path}[]")),
        Kind::Map { value, .. } => nested(page, value, &format!("{path}.*")),
        _ => {}
    }
}

fn one_of(page: &mut String, object: &Object, path: &str) {
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

/// What an overview has room for.
fn first_sentence(text: &str) -> String {
    text.split_once(". ").map_or_else(|| text.to_owned(), |(first, _)| format!("{first}."))
}

/// A type as people say it.
fn words(kind: &Kind) -> String {
    let fixed = match kind {
        Kind::Text => "string",
        Kind::Name => "name",
        Kind::HeaderName => "header name",
        Kind::HeaderValue => "header value",
        Kind::Method => "method",
        Kind::Path => "path",
        Kind::Host => "host",
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
        Kind::Expression => "CEL expression",
        Kind::JsonSchema => "JSON Schema",
        Kind::JwkSet => "JSON Web Key set",
        Kind::EnvoyMessage => "resource of Envoy in protobuf JSON",
        Kind::Params => "parameters",
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

fn phases(schema: &PolicySchema) -> String {
    let names: Vec<_> = schema.phases.iter().map(|phase| format!("`{}`", phase_name(*phase))).collect();
    names.join(", ")
}

const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Request => "request",
        Phase::Response => "response",
    }
}

/// A row of a table: a `|` in a cell would end it.
fn row(page: &mut String, cells: &[&str]) {
    let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    push(page, format_args!("| {} |\n", cells.join(" | ")));
}

fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = page.write_fmt(text);
}
