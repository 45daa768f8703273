//! Loading expressions: what is refused, and the messages.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

use postern_engine::{
    budget::Budget,
    cel::{Attribute, Expression, NoAttributes, Value},
};
use postern_proto::plan::v1::{
    Expression as Wire,
    expression::{
        Attribute as WireAttribute, Call, Comprehension, Constant, Function, List, Macro, Map, Member, Node, Select,
        Timestamp, constant, node,
    },
};

fn node(kind: node::Kind) -> Node {
    Node { kind: Some(kind), column: 1 }
}

fn constant(kind: constant::Kind) -> Node {
    node(node::Kind::Constant(Constant { kind: Some(kind) }))
}

fn int(value: i64) -> Node {
    constant(constant::Kind::Int(value))
}

fn text(value: &str) -> Node {
    constant(constant::Kind::String(value.to_owned()))
}

fn call(function: Function, arguments: &[u32]) -> Node {
    node(node::Kind::Call(Call { function: function.into(), arguments: arguments.to_vec() }))
}

fn all(range: u32, body: u32) -> Node {
    node(node::Kind::Comprehension(Comprehension { r#macro: Macro::All.into(), range, body, filter: None }))
}

fn list(elements: &[u32]) -> Node {
    node(node::Kind::List(List { elements: elements.to_vec() }))
}

fn check(nodes: Vec<Node>, expect: &str) {
    let error = Expression::load(&Wire { nodes }).expect_err("the expression must be refused");
    assert_eq!(error.to_string(), expect);
}

#[test]
fn loads_a_good_expression() {
    let member = Member { attribute: WireAttribute::RequestHeaders.into(), key: "x-a".to_owned() };
    let nodes = vec![
        node(node::Kind::HasMember(member.clone())),
        node(node::Kind::Member(member)),
        text("a"),
        call(Function::Equal, &[1, 2]),
        call(Function::And, &[0, 3]),
    ];
    let expression = Expression::load(&Wire { nodes }).unwrap();
    assert_eq!(expression.attributes(), [Attribute::RequestHeaders]);
}

#[test]
fn evaluates_what_reads_nothing() {
    let nodes = vec![int(20), int(22), call(Function::Add, &[0, 1])];
    let expression = Expression::load(&Wire { nodes }).unwrap();
    assert_eq!(expression.evaluate(&NoAttributes, &Budget::default()), Ok(Value::Int(42)));
    let error = expression.test(&NoAttributes, &Budget::default()).unwrap_err();
    assert_eq!(error.to_string(), "the result is an int, not true or false");
}

#[test]
fn refuses_what_is_no_tree() {
    check(vec![], "the expression is empty");
    check(vec![call(Function::Not, &[0])], "node 0: node 0 cannot be part of it");
    check(vec![call(Function::Not, &[1]), int(1)], "node 0: node 1 cannot be part of it");
    check(vec![int(1), call(Function::Add, &[0, 0])], "node 1: node 0 cannot be part of it");
    check(vec![int(1), int(2), call(Function::Not, &[1])], "node 0 is part of nothing");
    check(vec![int(1), list(&[0, u32::MAX])], "node 1: node 4294967295 cannot be part of it");
}

#[test]
fn refuses_what_it_does_not_know() {
    check(vec![Node::default()], "node 0: of a kind that is not known");
    check(vec![node(node::Kind::Constant(Constant { kind: None }))], "node 0: a constant of a type that is not known");
    check(vec![node(node::Kind::Attribute(0))], "node 0: attribute 0 is not known to this engine");
    check(vec![node(node::Kind::Attribute(999))], "node 0: attribute 999 is not known to this engine");
    let unknown = Call { function: 999, arguments: vec![] };
    check(vec![node(node::Kind::Call(unknown))], "node 0: function 999 is not known to this engine");
    let unknown = Comprehension { r#macro: 9, range: 0, body: 1, filter: None };
    check(
        vec![int(1), int(2), node(node::Kind::Comprehension(unknown))],
        "node 2: macro 9 is not known to this engine",
    );
}

#[test]
fn refuses_nodes_that_are_wrong_by_themselves() {
    let arity = "a function with too many arguments, or too few";
    check(vec![int(1), call(Function::Add, &[0])], &format!("node 1: {arity}"));
    check(vec![call(Function::Conditional, &[])], &format!("node 0: {arity}"));
    let map = Map { keys: vec![0], values: vec![] };
    check(vec![int(1), node(node::Kind::Map(map))], "node 1: a map with more keys than values, or less");
    let member = Member { attribute: WireAttribute::RequestMethod.into(), key: "x".to_owned() };
    check(vec![node(node::Kind::Member(member))], "node 0: an entry of an attribute that is no map");
    let late = Timestamp { seconds: 253_402_300_800, nanoseconds: 0 };
    check(vec![constant(constant::Kind::Timestamp(late))], "node 0: a timestamp out of range");
    let filter = Comprehension { r#macro: Macro::All.into(), range: 0, body: 1, filter: Some(2) };
    let nodes = vec![list(&[]), int(1), int(2), node(node::Kind::Comprehension(filter))];
    check(nodes, "node 3: a filter that is not of `map`");
}

#[test]
fn refuses_a_variable_outside_of_its_comprehension() {
    let variable = |outwards| node(node::Kind::Variable(outwards));
    check(vec![variable(0)], "a variable has no comprehension around it");
    check(vec![list(&[]), variable(1), all(0, 1)], "a variable has no comprehension around it");
    check(vec![variable(0), int(1), all(0, 1)], "a variable has no comprehension around it");
    assert!(Expression::load(&Wire { nodes: vec![list(&[]), variable(0), all(0, 1)] }).is_ok());
}

#[test]
fn refuses_patterns_that_cannot_be_compiled() {
    let pattern = |pattern: &str| vec![text("a"), text(pattern), call(Function::Matches, &[0, 1])];
    let refused = "is not a regular expression that can be used";
    check(pattern("("), &format!("node 2: `(` {refused}: found open group without closing ')'"));
    let wire =
        |text: &str| Expression::load(&Wire { nodes: pattern(text) }).map(|_| ()).map_err(|error| error.to_string());
    for wrong in ["\\p{L}", "(a{1000}){1000}", "(?i)é", "a(?=b)", "(a)\\1"] {
        assert!(wire(wrong).unwrap_err().contains(refused), "`{wrong}` was not refused");
    }
    assert_eq!(wire("(?i)^[a-z]+(-[0-9]{2,4})?$"), Ok(()));
}

#[test]
fn bounds_depth_nodes_and_text() {
    let mut deep = vec![int(1)];
    deep.extend((0..64).map(|below| list(&[below])));
    check(deep.clone(), "the expression has more than 64 levels");
    assert!(Expression::load(&Wire { nodes: deep[..64].to_vec() }).is_ok());
    check(vec![int(1); 2_049], "the expression has more than 2048 nodes");
    check(vec![text(&"x".repeat((64 << 10) + 1))], "the expression has more than 65536 bytes of constants");
    let select = Select { operand: 0, field: "x".repeat(64 << 10) };
    check(vec![text("x"), node(node::Kind::Select(select))], "the expression has more than 65536 bytes of constants");
}
