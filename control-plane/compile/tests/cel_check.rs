//! Errors in expressions before evaluation: messages and columns.

use postern_compile::expression::{Environment, compile, compile_condition};

/// Compares all errors, each as `column: message`.
fn check(expression: &str, expect: &[&str]) {
    let errors = compile(expression, Environment::Request).err().unwrap_or_default();
    let shown: Vec<_> = errors.iter().map(|error| format!("{}: {error}", error.column)).collect();
    assert_eq!(shown, expect, "for `{expression}`");
}

#[test]
fn suggests_names_that_are_nearly_right() {
    check("request.metod == 'GET'", &["1: unknown attribute `request.metod`: did you mean `request.method`?"]);
    check("'é' in [request.hots]", &["9: unknown attribute `request.hots`: did you mean `request.host`?"]);
    check("request.path.startWith('/a')", &["14: unknown function `startWith`: did you mean `startsWith`?"]);
    check("foo.bar", &["1: unknown attribute `foo.bar`"]);
    check("foo", &["1: unknown attribute `foo`"]);
    check("request", &["1: `request` is not a value: name what is in it, such as `request.method`"]);
    check("metadata.x.y == 'z' && jwt.claims.sub != ''", &[]);
}

#[test]
fn finds_all_errors_at_once() {
    check(
        "request.metod == 1 || nothing(2) && 'a' + 1 == 'b'",
        &[
            "1: unknown attribute `request.metod`: did you mean `request.method`?",
            "23: unknown function `nothing`",
            "41: `+` is not defined for string and int",
        ],
    );
}

#[test]
fn knows_what_comes_with_the_response() {
    check("response.code == 200", &["1: `response.code` is not known before there is a response"]);
    assert!(compile("response.code == 200", Environment::Response).is_ok());
}

#[test]
fn checks_how_functions_are_called() {
    check("'a'.startsWith()", &["5: `startsWith` takes 1 argument, not 0"]);
    check("'a'.split(',', 1, 2)", &["5: `split` takes 1 to 2 arguments, not 3"]);
    check("int()", &["1: `int` takes 1 argument, not 0"]);
    check("startsWith('a', 'b')", &["1: `startsWith` is called on a value: write `….startsWith(…)`"]);
    check("'1'.int()", &["5: `int` is not called on a value: write `int(…)`"]);
    check("type(1)", &["1: `type` is not supported: there are no values that are types"]);
    check("request.time.getHours('Europe/Berlin')", &["14: time zones are not supported: `getHours()` is in UTC"]);
    check("request . path . contains ( 1 )", &["18: `contains` is not defined for string and int"]);
}

#[test]
fn checks_macros() {
    check("[1].all(x)", &["5: `all` takes 2 arguments, not 1"]);
    check("[1].map(x, true, x, x)", &["5: `map` takes 2 to 3 arguments, not 4"]);
    check("[1].all(1, true)", &["9: the first argument of `all` must be the name of a variable"]);
    check("[1].all(a.b, true)", &["10: the first argument of `all` must be the name of a variable"]);
    check("[1].all(x, 'a')", &["12: the condition of `all` must be of type bool, not string"]);
    check("[1].map(x, 1, x)", &["12: the condition of `map` must be of type bool, not int"]);
    check("'abc'.all(x, true)", &["7: `all` goes over a list or the keys of a map, not over string"]);
    check("[1].all(x, y)", &["12: unknown attribute `y`"]);
    check("has(request)", &["1: `has` asks for a field: write `has(….field)`"]);
    check("has(request.headers['x'])", &["1: `has` asks for a field: write `has(….field)`"]);
    check("has()", &["1: `has` takes 1 argument, not 0"]);
    check("all([1], x, true)", &["1: `all` is called on a value: write `….all(…)`", "10: unknown attribute `x`"]);
}

#[test]
fn checks_patterns() {
    let refused = "is not a regular expression that can be used";
    check("request.path.matches('(')", &[&format!("14: `(` {refused}: found open group without closing ')'")]);
    check("'a'.matches('a' + '(')", &[&format!("5: `a(` {refused}: found open group without closing ')'")]);
}

#[test]
fn checks_types_that_are_known() {
    check("request.method.x", &["1: `request.method` is of type string: it has no field `x`"]);
    check("request.size + request.path", &["14: `+` is not defined for int and string"]);
    check("!request.size", &["1: `!` is not defined for int"]);
    check("request.headers['x'] > 5", &["22: `>` is not defined for string and int"]);
    check("'a' in 'abc'", &["5: `in` is not defined for string and string"]);
    check("[1]['a']", &["4: `[ ]` is not defined for list and string"]);
    check("metadata.n > 5 && jwt.claims.x == 1", &[]);
    check("request.id != null", &[]);
}

#[test]
fn wants_names_of_headers_in_lower_case() {
    let message = "names of headers are in lower case: write `x-api-key` for `X-Api-Key`";
    check("request.headers['X-Api-Key'] == 'a'", &[&format!("1: {message}")]);
    check("'X-Api-Key' in request.headers", &[&format!("13: {message}")]);
}

#[test]
fn places_syntax_errors() {
    check("", &["1: the expression is empty"]);
    check("1 +", &["4: the expression ends too early"]);
    check("'é' == 5 6", &["10: unexpected `6`"]);
    check("a = b", &["3: unexpected `= `"]);
    check("'abc", &["1: a string that has no end, or an escape that is not known"]);
    check("99999999999999999999", &["1: invalid int literal: number too large to fit in target type"]);
    check("true &&\n  (false", &["17: the expression ends too early"]);
    check("if", &["1: reserved identifier: if"]);
    check("T{a: 1}", &["2: messages are not supported: write a map in braces"]);
}

#[test]
fn bounds_what_is_compiled() {
    check(&"x".repeat(9_000), &["1: the expression is longer than 8192 bytes"]);
    let deep = format!("{}1{}", "[".repeat(70), "]".repeat(70));
    check(&deep, &["65: nested more than 64 deep"]);
    let long = vec!["1"; 3_000].join(",");
    check(&format!("request.size in [{long}]"), &["1: the expression has more than 2048 nodes"]);
    for shape in [".a", "[0]", "+a", "==a", "?a:a"] {
        assert!(compile(&format!("a{}", shape.repeat(1_600)), Environment::Request).is_err());
    }
    assert!(compile(&"-".repeat(8_000), Environment::Request).is_err());
    assert!(compile(&"(".repeat(8_000), Environment::Request).is_err());
    let wide = vec!["request.method == 'GET'"; 300].join(" || ");
    check(&wide, &[]);
}

#[test]
fn wants_conditions_to_be_true_or_false() {
    let errors = compile_condition("request.size + 1", Environment::Request).err().unwrap_or_default();
    assert_eq!(
        errors.first().map(ToString::to_string).as_deref(),
        Some("expected an expression of type bool, found int")
    );
    assert!(compile_condition("metadata.flag", Environment::Request).is_ok());
}
