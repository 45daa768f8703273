//! Checks a tree against a schema, and reports everything that does not fit. What a schema cannot express is checked by
//! each kind's `rules`, and references between resources by `links`.

use std::collections::HashMap;

use postern_base::{
    diagnostic::{Path, one_of, quote, suggestion, suggestion_or_all},
    yaml::{Key, Node, Position, Value},
};
use postern_engine::{
    policy,
    schema::{Field, Kind, Object},
};

use super::{
    attachment,
    format::{self, Checked},
    report::{Report, StepKey},
};

/// Checks a mapping: all known fields, required fields, and that there are no others.
pub(super) fn object(node: &Node, schema: &Object, path: &Path<'_>, report: &mut Report<'_>) {
    let Some(entries) = entries(node, path, report) else { return };
    unknown_fields(entries, schema, path, report);
    fields(node, schema.fields, path, report);
    if !schema.exactly_one_of.is_empty() {
        exactly_one(node, entries, schema, path, report);
    }
}

/// Checks the known fields of a mapping. Other fields are allowed.
pub(super) fn open_object(node: &Node, known: &[Field], path: &Path<'_>, report: &mut Report<'_>) {
    if entries(node, path, report).is_some() {
        fields(node, known, path, report);
    }
}

fn fields(node: &Node, fields: &[Field], path: &Path<'_>, report: &mut Report<'_>) {
    for field in fields {
        match (node.get(field.name), &field.kind) {
            (found, Kind::Params) => params(node, found, path, report),
            (Some(found), kind) => value(found, kind, &path.field(field.name), report),
            (None, _) if field.required => {
                let message = format!("missing required field {}", quote(field.name));
                report.missing(node.at, &path.field(field.name), message);
            }
            (None, _) => {}
        }
    }
}

fn value(node: &Node, kind: &Kind, path: &Path<'_>, report: &mut Report<'_>) {
    match kind {
        Kind::Text => text(node, format::text, path, report),
        Kind::Name => text(node, format::name, path, report),
        Kind::RouteName => text(node, format::route_name, path, report),
        Kind::HeaderName => text(node, format::header_name, path, report),
        Kind::EditedHeader(how) => text(node, |text| format::edited_header(text, *how), path, report),
        Kind::HeaderValue => text(node, format::header_value, path, report),
        Kind::Method => text(node, format::method, path, report),
        Kind::Path => text(node, format::path, path, report),
        Kind::PathTemplate => text(node, format::path_template, path, report),
        Kind::Regex => text(node, format::regex, path, report),
        Kind::Host => text(node, format::host, path, report),
        Kind::HostTemplate => text(node, format::host_template, path, report),
        Kind::PortTemplate => port_template(node, path, report),
        Kind::Address => text(node, format::address, path, report),
        Kind::IpAddress => text(node, format::ip_address, path, report),
        Kind::Cidr => text(node, format::cidr, path, report),
        Kind::Sha256 => text(node, format::sha256, path, report),
        Kind::Size => size(node, path, report),
        Kind::Duration => time(node, format::duration, path, report),
        Kind::Timeout => time(node, format::timeout, path, report),
        // Its phase and its attributes are checked by lowering.
        Kind::Expression => text(node, format::text, path, report),
        Kind::Choice(words) => text(node, |text| format::choice(text, words), path, report),
        Kind::Integer { min, max } => integer(node, *min, *max, path, report),
        Kind::Percent => percent(node, path, report),
        Kind::Boolean => boolean(node, path, report),
        Kind::Object(schema) => object(node, schema, path, report),
        Kind::List { item, at_least } => list(node, item, *at_least, path, report),
        Kind::Map { key, value } => map(node, key, value, path, report),
        Kind::JsonSchema => json_schema(node, path, report),
        Kind::JwkSet => key_set(node, path, report),
        Kind::EnvoyMessage => envoy_message(node, path, report),
        Kind::Pem => pem(node, path, report),
        // Checked in `fields`, since only the mapping around it names the policy.
        Kind::Params => {}
    }
}

fn text(node: &Node, rule: impl Fn(&str) -> Checked, path: &Path<'_>, report: &mut Report<'_>) {
    match &node.value {
        Value::Text(text) => {
            if let Err(message) = rule(text) {
                report.error(node.at, path, message);
            }
        }
        Value::Bool(_) | Value::Integer(_) | Value::Float(_) => {
            let message = format!("expected a string, found {}: put it in quotes", node.value.describe());
            report.error(node.at, path, message);
        }
        _ => wrong_type(node, "a string", path, report),
    }
}

/// A length of time: text with a unit. A bare number is most often meant in seconds.
fn time(node: &Node, rule: impl Fn(&str) -> Checked, path: &Path<'_>, report: &mut Report<'_>) {
    match &node.value {
        Value::Integer(number) => {
            if let Err(message) = rule(&number.to_string()) {
                report.error(node.at, path, message);
            }
        }
        _ => text(node, rule, path, report),
    }
}

fn integer(node: &Node, min: i64, max: i64, path: &Path<'_>, report: &mut Report<'_>) {
    match &node.value {
        Value::Integer(number) if (min..=max).contains(number) => {}
        Value::Integer(number) => {
            let message = format!("expected a whole number from {min} to {max}, found `{number}`");
            report.error(node.at, path, message);
        }
        Value::Float(_) => report.error(node.at, path, format!("expected a whole number from {min} to {max}")),
        _ => wrong_type(node, "a whole number", path, report),
    }
}

fn percent(node: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    let fits = match &node.value {
        Value::Integer(number) => (0..=100).contains(number),
        Value::Float(number) => (0.0..=100.0).contains(number) && (number * 1e4 - (number * 1e4).round()).abs() < 1e-6,
        _ => return wrong_type(node, "a number from 0 to 100", path, report),
    };
    if !fits {
        report.error(node.at, path, "expected a number from 0 to 100, with at most four decimals");
    }
}

/// A size: text with a unit, or a number of bytes.
fn size(node: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    match &node.value {
        Value::Integer(bytes) if *bytes >= 0 => {}
        Value::Integer(_) | Value::Float(_) => report.error(node.at, path, "expected a size such as `64KiB`"),
        _ => text(node, format::size, path, report),
    }
}

/// A port: a number, or text that becomes one.
fn port_template(node: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    let found = match &node.value {
        Value::Integer(number) => number.to_string(),
        Value::Text(text) => text.clone(),
        _ => return wrong_type(node, "a port, or text that becomes one", path, report),
    };
    if let Err(message) = format::port_template(&found) {
        report.error(node.at, path, message);
    }
}

fn boolean(node: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    if !matches!(node.value, Value::Bool(_)) {
        wrong_type(node, "`true` or `false`", path, report);
    }
}

/// A JSON Schema. Its content is checked by lowering, which reports faults at their fields.
fn json_schema(node: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    if !matches!(node.value, Value::Map(_) | Value::Bool(_)) {
        wrong_type(node, "a JSON Schema (a mapping)", path, report);
    }
}

/// A key set. Its keys are checked by the kind's rules.
fn key_set(node: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    if !matches!(node.value, Value::Map(_) | Value::Text(_)) {
        wrong_type(node, "a mapping, or JSON in a string", path, report);
    }
}

/// A message of Envoy. Its content is checked by the kind's rules.
fn envoy_message(node: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    if !matches!(node.value, Value::Map(_)) {
        wrong_type(node, "a mapping", path, report);
    }
}

/// PEM, or a mapping that names a file. The text is checked by the kind's rules, the file by `attachment`.
fn pem(node: &Node, path: &Path<'_>, report: &mut Report<'_>) {
    match &node.value {
        Value::Text(_) => {}
        Value::Map(_) => object(node, &attachment::REFERENCE, path, report),
        _ => wrong_type(node, "PEM in a string, or a mapping with `file`", path, report),
    }
}

fn exactly_one(node: &Node, entries: &[(Key, Node)], schema: &Object, path: &Path<'_>, report: &mut Report<'_>) {
    let known = names(schema);
    let mistyped = entries.iter().any(|(key, _)| !known.contains(&key.name.as_str()));
    match entries.iter().filter(|(key, _)| schema.exactly_one_of.contains(&key.name.as_str())).count() {
        1 => {}
        // The misspelled field is reported already.
        0 if mistyped => {}
        0 => report.missing(node.at, path, format!("expected exactly {}", one_of(schema.exactly_one_of))),
        _ => report.error(node.at, path, format!("expected exactly {}", one_of(schema.exactly_one_of))),
    }
}

fn list(node: &Node, item: &Kind, at_least: usize, path: &Path<'_>, report: &mut Report<'_>) {
    let Value::List(items) = &node.value else { return wrong_type(node, "a list", path, report) };
    if items.len() < at_least {
        let noun = if at_least == 1 { "item" } else { "items" };
        report.error(node.at, path, format!("expected at least {at_least} {noun}, found {}", items.len()));
    }
    let mut headers = HeaderNames::default();
    for (index, node) in items.iter().enumerate() {
        let path = path.item(index);
        // Merging replaces lists whole, so another step cannot add what is missing in an item.
        report.within_step(None, |report| value(node, item, &path, report));
        if let (Kind::HeaderName | Kind::EditedHeader(_), Some(name)) = (item, node.text()) {
            headers.admit(name, node.at, &path, report);
        }
    }
}

fn map(node: &Node, key_kind: &Kind, value_kind: &Kind, path: &Path<'_>, report: &mut Report<'_>) {
    let Some(entries) = entries(node, path, report) else { return };
    let mut headers = HeaderNames::default();
    for (key, node) in entries {
        let path = path.field(&key.name);
        value(&Node { at: key.at, value: Value::Text(key.name.clone()) }, key_kind, &path, report);
        value(node, value_kind, &path, report);
        if let Kind::HeaderName | Kind::EditedHeader(_) = key_kind {
            headers.admit(&key.name, key.at, &path, report);
        }
    }
}

/// Checks the parameters of a step. Absent parameters are checked as an empty mapping, so that required ones are
/// reported.
fn params(step: &Node, params: Option<&Node>, path: &Path<'_>, report: &mut Report<'_>) {
    let Some((policy, name)) = step.get("policy").and_then(|policy| Some((policy, policy.text()?))) else { return };
    match policy::schema(name) {
        Some(schema) => {
            let absent = Node { at: step.at, value: Value::Map(Vec::new()) };
            let step_name = step.get("name").and_then(Node::text).unwrap_or(name);
            let key = StepKey { name: step_name.to_owned(), policy: name.to_owned() };
            report.within_step(Some(key), |report| {
                object(params.unwrap_or(&absent), &schema.params, &path.field("params"), report);
            });
        }
        None => {
            let known: Vec<_> = policy::SCHEMAS.iter().map(|schema| schema.name).collect();
            let message = format!("unknown policy {}{}", quote(name), suggestion_or_all(name, &known));
            report.error(policy.at, &path.field("policy"), message);
        }
    }
}

fn unknown_fields(entries: &[(Key, Node)], schema: &Object, path: &Path<'_>, report: &mut Report<'_>) {
    let known = names(schema);
    for (key, _) in entries {
        if !known.contains(&key.name.as_str()) {
            let near = suggestion(&key.name, known.iter().copied());
            report.error(key.at, &path.field(&key.name), format!("unknown field {}{near}", quote(&key.name)));
        }
    }
}

fn entries<'n>(node: &'n Node, path: &Path<'_>, report: &mut Report<'_>) -> Option<&'n [(Key, Node)]> {
    match &node.value {
        Value::Map(entries) => Some(entries),
        _ => {
            wrong_type(node, "a mapping", path, report);
            None
        }
    }
}

fn wrong_type(node: &Node, expected: &str, path: &Path<'_>, report: &mut Report<'_>) {
    report.error(node.at, path, format!("expected {expected}, found {}", node.value.describe()));
}

fn names(schema: &Object) -> Vec<&'static str> {
    schema.fields.iter().map(|field| field.name).collect()
}

/// Detects header names in one list or mapping that differ only in case.
#[derive(Default)]
struct HeaderNames(HashMap<String, (String, usize)>);

impl HeaderNames {
    fn admit(&mut self, name: &str, at: Position, path: &Path<'_>, report: &mut Report<'_>) {
        match self.0.get(&name.to_ascii_lowercase()) {
            Some((first, line)) => {
                let message = format!("header {} is named twice: {} on line {line}", quote(name), quote(first));
                report.error(at, path, message);
            }
            None => {
                self.0.insert(name.to_ascii_lowercase(), (name.to_owned(), at.line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_base::yaml::parse;

    const COLOURS: Kind = Kind::Choice(&["red", "green"]);
    const INNER: Object = Object { fields: &[Field::required("id", Kind::Name, "")], exactly_one_of: &[] };
    const EITHER: Object = Object {
        fields: &[Field::optional("left", Kind::Text, ""), Field::optional("right", Kind::Text, "")],
        exactly_one_of: &["left", "right"],
    };
    const STEP: Object = Object {
        fields: &[Field::required("policy", Kind::Text, ""), Field::optional("params", Kind::Params, "")],
        exactly_one_of: &[],
    };
    const SCHEMA: Object = Object {
        fields: &[
            Field::optional("text", Kind::Text, ""),
            Field::optional("port", Kind::Integer { min: 1, max: 65535 }, ""),
            Field::optional("flag", Kind::Boolean, ""),
            Field::optional("share", Kind::Percent, ""),
            Field::optional("colour", COLOURS, ""),
            Field::optional("inner", Kind::Object(&INNER), ""),
            Field::optional("either", Kind::Object(&EITHER), ""),
            Field::optional("methods", Kind::List { item: &Kind::Method, at_least: 1 }, ""),
            Field::optional("headers", Kind::List { item: &Kind::HeaderName, at_least: 0 }, ""),
            Field::optional("set", Kind::Map { key: &Kind::HeaderName, value: &Kind::HeaderValue }, ""),
            Field::optional("step", Kind::Object(&STEP), ""),
        ],
        exactly_one_of: &[],
    };

    fn check(input: &str, expect: &[&str]) {
        let mut report = Report::new("f", None);
        object(&parse(input.as_bytes()).documents[0].root, &SCHEMA, &Path::Root, &mut report);
        let lacking: Vec<_> = report.take_lacking().into_iter().map(|lacking| lacking.error.to_string()).collect();
        let found: Vec<_> = report.into_found().iter().map(ToString::to_string).chain(lacking).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn accepts_what_fits() {
        check("{text: a, port: 80, flag: true, colour: red, inner: {id: x}, either: {left: a}}", &[]);
        check("{methods: [GET], headers: [], set: {}, step: {policy: headers}}", &[]);
        check("step: {policy: headers, params: {remove: [x-a], set: {x-b: c}, add: {x-a: d}}}", &[]);
    }

    #[test]
    fn reports_wrong_types() {
        check("[]", &["f:1:1: expected a mapping, found a list"]);
        check("text: [a]", &["f:1:7: text: expected a string, found a list"]);
        check("text: 5", &["f:1:7: text: expected a string, found a number: put it in quotes"]);
        check("text: true", &["f:1:7: text: expected a string, found a boolean: put it in quotes"]);
        check("text:", &["f:1:5: text: expected a string, found nothing"]);
        check("port: '80'", &["f:1:7: port: expected a whole number, found a string"]);
        check("flag: yes", &["f:1:7: flag: expected `true` or `false`, found a string"]);
        check("inner: a", &["f:1:8: inner: expected a mapping, found a string"]);
        check("either: a", &["f:1:9: either: expected a mapping, found a string"]);
        check("methods: GET", &["f:1:10: methods: expected a list, found a string"]);
        check("set: [a]", &["f:1:6: set: expected a mapping, found a list"]);
    }

    #[test]
    fn reports_numbers_out_of_range() {
        check("port: 0", &["f:1:7: port: expected a whole number from 1 to 65535, found `0`"]);
        check("port: 65536", &["f:1:7: port: expected a whole number from 1 to 65535, found `65536`"]);
        check("port: 1.5", &["f:1:7: port: expected a whole number from 1 to 65535"]);
        check("port: 99999999999999999999", &["f:1:7: port: expected a whole number from 1 to 65535"]);
    }

    #[test]
    fn takes_percentages_of_four_decimals() {
        for fits in ["0", "100", "0.1", "0.0001", "12.3457", "99.9999", "33.3", "1e1", "100.0"] {
            check(&format!("share: {fits}"), &[]);
        }
        let message = "f:1:8: share: expected a number from 0 to 100, with at most four decimals";
        for outside in ["-1", "101", "100.0001", "0.00001", "-0.5", ".nan", ".inf"] {
            check(&format!("share: {outside}"), &[message]);
        }
        check("share: 10%", &["f:1:8: share: expected a number from 0 to 100, found a string"]);
    }

    #[test]
    fn reports_unknown_and_missing_fields() {
        check("colr: red", &["f:1:1: colr: unknown field `colr`: did you mean `colour`?"]);
        check("weight: 3", &["f:1:1: weight: unknown field `weight`"]);
        check("inner:\n  ", &["f:1:6: inner: expected a mapping, found nothing"]);
        check(
            "text: a\ninner:\n  key: x",
            &["f:3:3: inner.key: unknown field `key`", "f:3:3: inner.id: missing required field `id`"],
        );
    }

    #[test]
    fn reports_unknown_choices() {
        check("colour: gren", &["f:1:9: colour: unknown value `gren`: did you mean `green`?"]);
        check("colour: 3", &["f:1:9: colour: expected a string, found a number: put it in quotes"]);
    }

    #[test]
    fn wants_exactly_one_of_some_fields() {
        let message = "f:1:9: either: expected exactly one of `left`, `right`";
        check("either: {}", &[message]);
        check("either: {left: a, right: b}", &[message]);
        check("either: {lft: a}", &["f:1:10: either.lft: unknown field `lft`: did you mean `left`?"]);
    }

    #[test]
    fn reports_items_of_lists() {
        check("methods: []", &["f:1:10: methods: expected at least 1 item, found 0"]);
        check("methods: [GET, get]", &["f:1:16: methods[1]: expected an HTTP method in upper case, found `get`"]);
    }

    #[test]
    fn reports_keys_and_values_of_maps() {
        check(
            "set: {'a b': c, x-d: 4}",
            &[
                r#"f:1:7: set["a b"]: expected the name of a header, found `a b`"#,
                "f:1:22: set.x-d: expected a string, found a number: put it in quotes",
            ],
        );
    }

    #[test]
    fn reports_headers_that_differ_only_in_case() {
        check("set:\n  X-A: b\n  x-a: c", &["f:3:3: set.x-a: header `x-a` is named twice: `X-A` on line 2"]);
        check("headers: [x-a, X-a]", &["f:1:16: headers[1]: header `X-a` is named twice: `x-a` on line 1"]);
    }

    #[test]
    fn checks_params_against_the_policy() {
        check(
            "step: {policy: apiKeyAuth, params: {heder: x}}",
            &["f:1:37: step.params.heder: unknown field `heder`: did you mean `header`?"],
        );
        check("step: {policy: headers, params: [a]}", &["f:1:33: step.params: expected a mapping, found a list"]);
    }

    #[test]
    fn takes_absent_params_as_an_empty_mapping() {
        check(
            "step: {policy: apiKeyAuth}",
            &["f:1:7: step.params: expected exactly one of `header`, `query`, `cookie`"],
        );
    }

    #[test]
    fn reports_unknown_policies() {
        check(
            "step: {policy: apiKeyAut, params: {a: 1}}",
            &["f:1:16: step.policy: unknown policy `apiKeyAut`: did you mean `apiKeyAuth`?"],
        );
        check("step: {policy: 3}", &["f:1:16: step.policy: expected a string, found a number: put it in quotes"]);
        let known: Vec<_> = policy::SCHEMAS.iter().map(|schema| schema.name).collect();
        let expect = format!("f:1:16: step.policy: unknown policy `zzz`: expected {}", one_of(&known));
        check("step: {policy: zzz}", &[&expect]);
    }

    #[test]
    fn reports_all_errors_at_once() {
        check(
            "text: 1\nport: x\nflag: 2\nmethods: [a]\nextra: 1",
            &[
                "f:5:1: extra: unknown field `extra`",
                "f:1:7: text: expected a string, found a number: put it in quotes",
                "f:2:7: port: expected a whole number, found a string",
                "f:3:7: flag: expected `true` or `false`, found a number",
                "f:4:11: methods[0]: expected an HTTP method in upper case, found `a`",
            ],
        );
    }
}
