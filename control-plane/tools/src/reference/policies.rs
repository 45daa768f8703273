//! The reference of the built-in policies, `docs/policies.md`.

use postern_engine::{
    Phase,
    policy::SCHEMAS,
    schema::{Ending, PolicySchema},
};

use super::table::{fields, first_sentence, one_of, push, row};

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

/// The whole page, as Markdown.
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

/// The example of a policy, in a whole resource for a route `api`.
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
        fields(page, &schema.params, "");
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
