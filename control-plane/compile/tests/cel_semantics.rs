//! The meaning of expressions, from text to value: CEL's rules, and above all their corner cases.

#![allow(clippy::unwrap_used, reason = "test code")]

use postern_compile::expression::{Environment, Input, compile, notation};
use postern_engine::{budget::Budget, cel::Expression};

const INPUT: &str = r#"{
    "request": {
        "method": "GET", "path": "/a/b?x=1", "headers": {"x-a": "1", "x-empty": ""}, "size": 10,
        "time": "2009-02-13T23:31:30Z", "body": "é"
    },
    "consumer": {"groups": ["dev", "ops"]},
    "jwt": {"claims": {"sub": "me", "nested": {"a": [1, 2.5]}, "admin": true, "n": 7, "none": null}},
    "response": {"code": 404}
}"#;

/// Compares the value in CEL's notation, or the error with its column.
fn check(expression: &str, expect: &str) {
    let input = Input::from_json(&serde_json::from_str(INPUT).unwrap()).unwrap();
    let shown = match compile(expression, Environment::Response) {
        Ok(compiled) => match Expression::load(&compiled.wire).unwrap().evaluate(&input, &Budget::default()) {
            Ok(value) => notation(&value),
            Err(error) => format!("{}: {error}", error.column()),
        },
        Err(errors) => errors.iter().map(|error| format!("{}: {error}; ", error.column)).collect(),
    };
    assert_eq!(shown, expect, "for `{expression}`");
}

#[test]
fn computes_with_integers_and_never_wraps() {
    check("1 + 2 * 3 - 4", "3");
    check("-7 / 2", "-3");
    check("-7 % 5", "-2");
    check("7 % -5", "2");
    check("9223372036854775807 + 1", "21: int overflow");
    check("-9223372036854775808 - 1", "22: int overflow");
    check("-(-9223372036854775808)", "1: int overflow");
    check("-9223372036854775808 / -1", "22: int overflow");
    check("5000000000 * 5000000000", "12: int overflow");
    check("0u - 1u", "4: uint overflow");
    check("18446744073709551615u + 1u", "23: uint overflow");
    check("1 / 0", "3: division by zero");
    check("1u % 0u", "4: modulus by zero");
    check("-(1u)", "1: `-` is not defined for uint; ");
}

/// langdef, "Name Resolution": a leading dot ignores the variables of comprehensions.
#[test]
fn means_the_outer_name_by_a_leading_dot() {
    check("['a'].map(request, request)", "['a']");
    check("['a'].map(request, .request.method)", "['GET']");
    check("['a'].map(request, .request.headers['x-a'] + request)", "['1a']");
    check(".request.method", "'GET'");
    check("['a'].exists(x, .x == 'a')", "18: unknown attribute `x`; ");
}

#[test]
fn computes_with_doubles_by_ieee_754() {
    check("1.5 + 2.5", "4.0");
    check("1.0 / 0.0", "double('inf')");
    check("-1.0 / 0.0", "double('-inf')");
    check("0.0 / 0.0", "double('NaN')");
    check("0.0 / 0.0 == 0.0 / 0.0", "false");
    check("0.0 / 0.0 != 0.0 / 0.0", "true");
    check("0.0 / 0.0 < 1.0", "false");
    check("1.0 >= 0.0 / 0.0", "false");
    check("-0.0 == 0.0", "true");
    check("1.0 % 1.0", "5: `%` is not defined for double and double; ");
}

#[test]
fn does_not_mix_types_in_arithmetic() {
    check("1 + 1u", "3: `+` is not defined for int and uint; ");
    check("dyn(1) + dyn(1u)", "8: + is not defined for int and uint");
    check("dyn('a') + dyn(1)", "10: + is not defined for string and int");
    check("dyn(true) + dyn(false)", "11: + is not defined for bool and bool");
}

#[test]
fn compares_numbers_by_value_across_types() {
    check("1 == 1u && 1u == 1.0 && 1.0 == 1", "true");
    check("1 < 1.5 && 1u < 1.5 && -1 < 0u && -1.5 < 0u", "true");
    check("9223372036854775807 < 9223372036854775808.0", "false");
    check("9223372036854775807 < 9223372036854777857.0", "true");
    check("-9223372036854775808 >= -9223372036854775809.0", "true");
    check("18446744073709551615u <= 18446744073709590000.0", "true");
    check("{9007199254740993: 1}[9007199254740992.0]", "22: no such key");
    check("dyn(1) < dyn('a')", "8: < is not defined for int and string");
}

#[test]
fn orders_what_has_an_order() {
    check("'a' < 'b' && 'Z' < 'a' && 'a' < 'ab'", "true");
    check("'\\u00e9' > 'z' && '\\U0001F431' > '\\uffff'", "true");
    check("b'\\xff' > b'\\x00' && false < true", "true");
    check("dyn([1]) < dyn([2])", "10: < is not defined for list and list");
    check("null < null", "6: `<` is not defined for null and null; ");
}

#[test]
fn finds_unlike_types_unequal_and_says_so_where_they_are_known() {
    check("dyn(1) == dyn('1')", "false");
    check("dyn([1, 'a']) == dyn([1.0, b'a'])", "false");
    check("[1, [2u, {'a': 3}]] == [1.0, [2, {'a': 3u}]]", "true");
    check("{'a': 1, 'b': 2} == {'b': 2.0, 'a': 1u}", "true");
    check("{'a': 1} == {'a': 1, 'b': 2}", "false");
    check("{1: 'a'} == {1u: 'a'}", "true");
    check("dyn(null) == dyn(0) || jwt.claims.none == null", "true");
    check("1 == 'a'", "3: `==` compares int with string: they are never equal; ");
    check("request.method == 1", "16: `==` compares string with int: they are never equal; ");
}

#[test]
fn lets_one_side_of_a_logical_operator_decide() {
    check("false && 1 / 0 > 0", "false");
    check("1 / 0 > 0 && false", "false");
    check("true || 1 / 0 > 0", "true");
    check("1 / 0 > 0 || true", "true");
    check("1 / 0 > 0 && true", "3: division by zero");
    check("1 / 0 > 0 || false", "3: division by zero");
    check("{}.a || {}.b", "9: no such key `b`");
    check("dyn(1) && false", "false");
    check("dyn(1) && true", "5: && is not defined for int");
    check("true || dyn('a')", "true");
    check("!dyn(1)", "1: ! is not defined for int");
}

#[test]
fn evaluates_one_branch_of_a_conditional() {
    check("true ? 1 : 1 / 0", "1");
    check("false ? 1 / 0 : 'other'", "'other'");
    check("1 / 0 > 0 ? 1 : 2", "3: division by zero");
    check("dyn(1) ? 1 : 2", "5: ? : is not defined for int");
    check("1 ? 2 : 3", "3: the condition of `? :` must be of type bool, not int; ");
}

#[test]
fn reads_lists_and_maps() {
    check("[1, 2, 3][1]", "2");
    check("[1, 2][2]", "7: index out of range");
    check("[1, 2][-1]", "7: index out of range");
    check("[7, 8][dyn(1.0)] == 8 && [7, 8][1u] == 8", "true");
    check("[7, 8][dyn(0.1)]", "7: index out of range");
    check("[7][dyn('a')]", "4: [ ] is not defined for list and string");
    check("{'a': 1}['a'] + {'a': 1}.a", "2");
    check("{'a': 1}.b", "1: no such key `b`");
    check("{1: 'a'}[1u] + {1u: 'b'}[1] + {2: 'c'}[2.0]", "'abc'");
    check("{true: 'a'}[true]", "'a'");
    check("{'a': 1, 'a': 2}", "10: a key is there twice");
    check("{1: 1, 1u: 2}", "8: a key is there twice");
    check("{1.5: 1}", "2: a key of a map must be of type bool, int, uint or string, not double; ");
    check("{dyn(null): 1}", "6: null cannot be a key of a map");
    check("1 in [1.0, 2] && !('a' in [1, 2]) && 'a' in {'a': 1} && 1u in {1: 2}", "true");
    check("dyn(null) in {'a': 1}", "false");
    check("dyn(1) in dyn('a')", "8: in is not defined for int and string");
    check("[1] + [2, 'x']", "[1, 2, 'x']");
}

#[test]
fn asks_whether_something_is_there() {
    check("has({'a': 1}.a) && !has({'a': 1}.b)", "true");
    check("has({}.a.b)", "5: no such key `a`");
    check("has(request.headers.nothing)", "false");
    check("has(jwt.claims.nested.a)", "true");
    check("has(jwt.claims.nothing.a)", "5: no such key `nothing`");
    check("has(jwt.claims.none)", "true");
    check("has(jwt.claims.sub.x)", "1: a field is not defined for string");
    check("has(consumer.name)", "false");
    check("has(consumer.groups) && has(request.method)", "true");
    check("has(metadata.x) || has(source.tags.y)", "false");
    check("'x-a' in request.headers && !('x-b' in request.headers)", "true");
}

#[test]
fn goes_over_lists_and_maps() {
    check("[1, 2, 3].all(x, x > 0) && ![1, 2].all(x, x > 1)", "true");
    check("[].all(x, x > 0) && ![].exists(x, true)", "true");
    check("[1, 2].exists(x, x == 2) && ['a', 'b'].exists_one(x, x == 'a')", "true");
    check("[1, 1].exists_one(x, x == 1)", "false");
    check("[1, 2, 3].map(x, x * x)", "[1, 4, 9]");
    check("[1, 2, 3].map(x, x > 1, x * x)", "[4, 9]");
    check("[1, 2, 3].filter(x, x % 2 == 1)", "[1, 3]");
    check("{'a': 1, 'b': 2}.map(k, k)", "['a', 'b']");
    check("{'a': 1}.exists(k, k == 'a')", "true");
    check("[[1, 2], [3]].map(x, x.map(y, y + size(x)))", "[[3, 4], [4]]");
    check("[1].map(x, [2].map(x, x))", "[[2]]");
    check("[1, 2].map(x, [10, 20].filter(y, y > x * 10))", "[[20], []]");
    check("consumer.groups.exists(g, g in ['ops', 'admin'])", "true");
    check("dyn(1).all(x, true)", "8: all is not defined for int");
}

#[test]
fn absorbs_errors_in_exists_and_all_but_nowhere_else() {
    check("[0, 1].exists(x, 1 / x == 1)", "true");
    check("[1, 0].exists(x, 1 / x == 2)", "20: division by zero");
    check("[0, 1].all(x, 1 / x == 2)", "false");
    check("[0, 1].all(x, 1 / x == 1)", "17: division by zero");
    check("[0, 1].exists_one(x, 1 / x == 1)", "24: division by zero");
    check("[0, 1].filter(x, 1 / x == 1)", "20: division by zero");
    check("[0, 1].map(x, 1 / x)", "17: division by zero");
    check("[1, 'a'].exists(x, x > 1)", "22: > is not defined for string and int");
    check("[1, 'a', 3].exists(x, x > 1)", "true");
}

#[test]
fn works_on_text_by_code_points() {
    check("size('tacocat') == 7 && 'é🐱'.size() == 2 && size(b'é') == 2", "true");
    check("'abc'.startsWith('ab') && 'abc'.endsWith('bc') && 'abc'.contains('b') && 'abc'.contains('')", "true");
    check("'TacoCÆt'.lowerAscii() + 'é1a'.upperAscii()", "'tacocÆté1A'");
    check("' \\t a \\u00a0'.trim()", "'a'");
    check("'a,b,c'.split(',')", "['a', 'b', 'c']");
    check("'a,b,c'.split(',', 2)", "['a', 'b,c']");
    check("'a,b'.split(',', 0)", "[]");
    check("'aéb'.split('')", "['a', 'é', 'b']");
    check("'abc'.split('', 2)", "['a', 'bc']");
    check("'a-b-c'.replace('-', '+') + 'a-b-c'.replace('-', '+', 1)", "'a+b+ca+b-c'");
    check("'ab'.replace('', '_')", "'_a_b_'");
    check("'ta©o©αT'.substring(2, 6)", "'©o©α'");
    check("'tacocat'.substring(7)", "''");
    check("'tacocat'.substring(8)", "11: index out of range");
    check("'tacocat'.substring(4, 3)", "11: index out of range");
    check("'tacocat'.substring(-1)", "11: index out of range");
    check("'ta©o©αT'.indexOf('©', 3)", "4");
    check("'tacocat'.indexOf('none')", "-1");
    check("'tacocat'.indexOf('', 3)", "3");
    check("'tacocat'.indexOf('a', 30)", "11: index out of range");
    check("'©αT'.charAt(1) + 'a'.charAt(1)", "'α'");
    check("'a'.charAt(2)", "5: index out of range");
    check("{'x-a': 1}.`x-a`", "1");
    check("dyn(1).startsWith('a')", "8: startsWith is not defined for int and string");
}

#[test]
fn matches_a_part_in_linear_time() {
    check("'hubba'.matches('ubb') && !'hubba'.matches('^ubb') && matches('a1', '[a-z]\\\\d$')", "true");
    check("'x'.matches(dyn('x') + dyn('|y'))", "true");
    check("request.path.matches(request.method + '(')", "14: not a regular expression that can be used here");
    check("'é'.matches('^.$') && !'é'.matches('\\\\w')", "true");
    check("'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!'.matches('^(a+)+$')", "false");
    check("'ÀB'.matches('(?i)b$')", "true");
    let long = "x".repeat(3_000);
    check(&format!("'{long}'.matches('^x+$')"), "true");
    check(&format!("'{long}'.matches('(x?){{200}}y')"), "3004: the evaluation takes too long");
    check("request.path.matches('(x?){200}y')", "false");
}

#[test]
fn reads_escapes_in_literals() {
    check(r"'\x41\u00e9\U0001f431\101\a\n\\\'\?'", "'AéA\\u0007\\n\\\\\\'?'".replace("éA", "é🐱A").as_str());
    check(r#""it's" + r'\n' + '''a'b'''"#, r"'it\'s\\na\'b'");
    check(r"b'\xff\303\277a'", r"b'\xff\xc3\xbfa'");
    check("bytes('\\377') == b'\\377'", "false");
    check("0x1F + -0x1f + 0xAu == 10u ? 1 : 2", "14: `+` is not defined for int and uint; ");
    check("1e3 + .5", "1000.5");
}

#[test]
fn converts_between_types() {
    check(
        "[int('-5'), int(5u), int(-7.9), int(1.9), int(timestamp('2004-09-16T23:59:59Z'))]",
        "[-5, 5, -7, 1, 1095379199]",
    );
    check("int(9223372036854775807.0)", "1: this double cannot be converted to int");
    check("int(-9223372036854775808.0)", "1: this double cannot be converted to int");
    check("int(18446744073709551615u)", "1: this uint cannot be converted to int");
    check("int('1.5')", "1: this string cannot be converted to int");
    check("int(0.0 / 0.0)", "1: this double cannot be converted to int");
    check("[uint(5), uint('5'), uint(25.5)]", "[5u, 5u, 25u]");
    check("uint(-1)", "1: this int cannot be converted to uint");
    check("[double(1), double(1u), double('1.5e3'), double('-0.0')]", "[1.0, 1.0, 1500.0, -0.0]");
    check(
        "[string(1), string(1u), string(1.5), string(true), string(b'abc'), string(1e30)]",
        "['1', '1', '1.5', 'true', 'abc', '1e+30']",
    );
    check("string(b'\\xff')", "1: this bytes cannot be converted to string");
    check("string(request.body) + string(request.size)", "'é10'");
    check("[bool('true'), bool('F'), bool('1')]", "[true, false, true]");
    check("bool('TrUe')", "1: this string cannot be converted to bool");
    check("int(dyn([1]))", "1: int is not defined for list");
    check("string(null)", "1: `string` is not defined for null; ");
}

#[test]
fn computes_with_times_within_their_ranges() {
    check("timestamp('2009-02-13T23:00:00Z') + duration('4m')", "timestamp('2009-02-13T23:04:00Z')");
    check("timestamp('2009-02-13T23:00:00+01:30')", "timestamp('2009-02-13T21:30:00Z')");
    check(
        "timestamp('2000-02-29T00:00:00.5Z') - duration('500000001ns')",
        "timestamp('2000-02-28T23:59:59.999999999Z')",
    );
    check("timestamp(1000000000)", "timestamp('2001-09-09T01:46:40Z')");
    check("request.time - timestamp('2009-02-13T23:31:00Z') == duration('30s')", "true");
    check("duration('1h') - duration('1.5s') + duration('-2ms')", "duration('3598.498s')");
    check("duration('1h30m') > duration('89m59s')", "true");
    for wrong in ["0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "2001-02-29T00:00:00Z", "2000-01-01T24:00:00Z"] {
        check(&format!("timestamp('{wrong}')"), "1: this string cannot be converted to timestamp");
    }
    check("timestamp('0001-01-01T00:00:00Z') + duration('-1ns')", "35: timestamp overflow");
    check("timestamp('9999-12-31T23:59:59.999999999Z') + duration('1ns')", "45: timestamp overflow");
    check("timestamp('9999-12-31T23:59:59Z') - timestamp('0001-01-01T00:00:00Z')", "35: duration overflow");
    check("timestamp(253402300800)", "1: this int cannot be converted to timestamp");
    check("duration('320000000000s')", "1: this string cannot be converted to duration");
    check("duration('9223372036s') + duration('9223372036s')", "25: duration overflow");
    for wrong in ["", "1", "1x", "s", "-", "1s2", ".s"] {
        check(&format!("duration('{wrong}')"), "1: this string cannot be converted to duration");
    }
}

#[test]
fn takes_times_apart_in_utc() {
    let parts = "[t.getFullYear(), t.getMonth(), t.getDate(), t.getDayOfMonth(), t.getDayOfWeek(), t.getDayOfYear(), \
                 t.getHours(), t.getMinutes(), t.getSeconds(), t.getMilliseconds()]";
    check(&format!("[request.time].map(t, {parts})[0]"), "[2009, 1, 13, 12, 5, 43, 23, 31, 30, 0]");
    let old = "timestamp('1969-12-31T23:59:59.123456789Z')";
    check(&format!("[{old}].map(t, {parts})[0]"), "[1969, 11, 31, 30, 3, 364, 23, 59, 59, 123]");
    check("duration('3730.5s').getMinutes()", "62");
    check("[duration('1.234s').getMilliseconds(), duration('10000s').getHours()]", "[234, 2]");
    check("duration('1s').getMonth()", "16: `getMonth` is not defined for duration; ");
}

#[test]
fn reads_attributes() {
    check("request.method == 'GET' && request.headers['x-a'] == '1' && request.headers['x-empty'] == ''", "true");
    check("request.headers['x-b']", "1: no such key `x-b`");
    check("request.headers.map(k, k)", "['x-a', 'x-empty']");
    check("request.headers[request.method.lowerAscii()]", "16: no such key");
    check("jwt.claims.nested.a[1] + 0.5", "3.0");
    check("jwt.claims['nested']['a'][0]", "1");
    check("response.code >= 400 && response.code < 500", "true");
    check("request.id", "1: `request.id` is absent");
    check("request.id == 'x' || request.method == 'GET'", "true");
    check("source.tags", "{}");
}

#[test]
fn bounds_what_an_evaluation_costs() {
    let list = "[1,1,1,1,1,1,1,1,1,1]";
    let deep = (0..8).fold("request.size > 0".to_owned(), |body, level| format!("{list}.all(x{level}, {body})"));
    check(&format!("({deep}) || request.method == 'GET'"), "255: the evaluation takes too long");
    let doubled = (0..20).fold("request.path".to_owned(), |inner, _| format!("[{inner}].map(x, x + x)[0]"));
    assert!(doubled.len() < 8 << 10);
    let input = Input::from_json(&serde_json::from_str(INPUT).unwrap()).unwrap();
    let compiled = compile(&doubled, Environment::Request).unwrap();
    let expression = Expression::load(&compiled.wire).unwrap();
    // Making values costs steps; with a large budget, the limit of memory still applies.
    for (budget, expect) in [
        (Budget::default(), "the evaluation takes too long"),
        (Budget::new(1 << 40), "the evaluation makes too much data"),
    ] {
        assert_eq!(expression.evaluate(&input, &budget).unwrap_err().to_string(), expect);
    }
}
