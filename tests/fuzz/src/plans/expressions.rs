//! Expressions that plans are written with.

use postern_proto::plan::v1::{self as wire, expression::Attribute, expression::Function};

use crate::expressions::Tree;

/// `request.url_path.startsWith(prefix)`.
pub fn path_starts_with(prefix: &str) -> wire::Expression {
    let mut tree = Tree::default();
    let arguments = [tree.attribute(Attribute::RequestUrlPath), tree.text(prefix)];
    tree.call(Function::StartsWith, &arguments);
    tree.finish()
}

/// `request.query.contains(part)`.
pub fn query_contains(part: &str) -> wire::Expression {
    let mut tree = Tree::default();
    let arguments = [tree.attribute(Attribute::RequestQuery), tree.text(part)];
    tree.call(Function::Contains, &arguments);
    tree.finish()
}

/// `request.headers['x-kind'].size() < 8`.
pub fn has_kind() -> wire::Expression {
    let mut tree = Tree::default();
    let kind = tree.member(Attribute::RequestHeaders, "x-kind");
    let arguments = [tree.call(Function::Size, &[kind]), tree.int(8)];
    tree.call(Function::Less, &arguments);
    tree.finish()
}

/// `request.headers['x-user']`.
pub fn user() -> wire::Expression {
    let mut tree = Tree::default();
    tree.member(Attribute::RequestHeaders, "x-user");
    tree.finish()
}

/// `size(request.body) > 0`.
pub fn has_body() -> wire::Expression {
    let mut tree = Tree::default();
    let body = tree.attribute(Attribute::RequestBody);
    let arguments = [tree.call(Function::Size, &[body]), tree.int(0)];
    tree.call(Function::Greater, &arguments);
    tree.finish()
}
