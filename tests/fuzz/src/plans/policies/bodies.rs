//! Policies that look at a message as a whole, or answer it.

use postern_proto::plan::v1::{self as wire, number_rules::Bound, object_rules, step::Policy, validate};

use super::edges::prefix;
use super::scope::{Scope, bound, indexes, some};
use crate::Script;

pub(super) fn request_size(script: &mut Script<'_>, _scope: Scope) -> Policy {
    let most = |script: &mut Script<'_>| script.flag().then(|| script.number());
    Policy::RequestSize(wire::RequestSize {
        body: most(script),
        headers: most(script),
        header_bytes: most(script),
        path: most(script),
        query: most(script),
        require_length: script.flag(),
    })
}

pub(super) fn respond(script: &mut Script<'_>, scope: Scope) -> Policy {
    Policy::Respond(wire::Respond {
        answer: (script.byte() % 8 != 7).then(|| scope.answer(script)),
        redirect: script.flag().then(|| wire::Redirect {
            to: scope.string(script),
            scheme: scope.string(script),
            host: scope.string(script),
            path: scope.string(script),
            prefix: script.flag().then(|| prefix(script, scope)),
            keep_query: script.flag(),
        }),
        template: some(script, |script| wire::TemplatePart {
            text: scope.string(script),
            expression: scope.expression(script),
            escape: i32::from(script.byte() % 5),
        }),
    })
}

pub(super) fn validate(script: &mut Script<'_>, scope: Scope) -> Policy {
    let rule = |script: &mut Script<'_>| validate::Rule {
        expression: scope.expression(script),
        message: scope.string(script),
    };
    let rules = (0..script.below(4)).map(|_| rule(script)).collect();
    Policy::Validate(wire::Validate { rules, status: 400 + u32::from(script.byte()) })
}

pub(super) fn json_schema(script: &mut Script<'_>, scope: Scope) -> Policy {
    let count = 1 + script.below(3);
    Policy::JsonSchema(wire::JsonSchema {
        schemas: (0..count).map(|_| schema(script, scope, count)).collect(),
        content_types: scope.strings(script),
        allow_empty: script.flag(),
        status: 390 + u32::from(script.byte() % 128),
        most_errors: script.number() as u32,
    })
}

/// Schemas with many rules hardly ever load: most of their strings must be JSON or patterns.
fn rarely(script: &mut Script<'_>) -> bool {
    script.byte() % 8 == 7
}

/// One of `count` schemas that refer to each other.
fn schema(script: &mut Script<'_>, scope: Scope, count: usize) -> wire::Schema {
    let other = |script: &mut Script<'_>| if rarely(script) { script.index(count + 1) } else { 0 };
    let others = |script: &mut Script<'_>| if rarely(script) { indexes(script, count + 1) } else { vec![] };
    wire::Schema {
        always: (script.byte() % 8 == 7).then(|| script.flag()),
        types: u32::from(script.byte()),
        values: if rarely(script) { scope.strings(script) } else { vec![] },
        object: rarely(script).then(|| object(script, scope, count)),
        array: rarely(script).then(|| array(script, count)),
        text: rarely(script).then(|| wire::TextRules {
            least: bound(script),
            most: bound(script),
            patterns: scope.strings(script),
            format: i32::from(script.byte() % 7),
        }),
        number: rarely(script).then(|| number(script, scope)),
        all_of: others(script),
        any_of: others(script),
        one_of: others(script),
        not: other(script),
        r#if: other(script),
        then: other(script),
        r#else: other(script),
        reference: other(script),
    }
}

fn object(script: &mut Script<'_>, scope: Scope, count: usize) -> wire::ObjectRules {
    let property = |script: &mut Script<'_>| object_rules::Property {
        name: scope.string(script),
        schema: script.index(count + 1),
    };
    wire::ObjectRules {
        properties: some(script, property),
        patterns: some(script, property),
        additional: script.index(count + 1),
        names: script.index(count + 1),
        required: scope.strings(script),
        least: bound(script),
        most: bound(script),
        dependent_required: some(script, |script| object_rules::Dependency {
            name: scope.string(script),
            required: scope.strings(script),
        }),
        dependent_schemas: some(script, property),
    }
}

fn array(script: &mut Script<'_>, count: usize) -> wire::ArrayRules {
    wire::ArrayRules {
        prefix: indexes(script, count + 1),
        items: script.index(count + 1),
        contains: script.index(count + 1),
        contains_least: bound(script),
        contains_most: bound(script),
        least: bound(script),
        most: bound(script),
        unique: script.flag(),
    }
}

fn number(script: &mut Script<'_>, scope: Scope) -> wire::NumberRules {
    let limit = |script: &mut Script<'_>| Bound { number: scope.string(script), exclusive: script.flag() };
    wire::NumberRules { least: some(script, limit), most: some(script, limit), multiple_of: scope.strings(script) }
}
