//! Expressions in the plan's form: written by hand, and made from a script.

use postern_proto::plan::v1::{
    self as wire,
    expression::{self as parts, Attribute, Function, Macro, constant, node},
};

use crate::Script;

/// Attributes that scripts choose from, one at least of each type.
const ATTRIBUTES: [Attribute; 14] = [
    Attribute::RequestMethod,
    Attribute::RequestUrlPath,
    Attribute::RequestQuery,
    Attribute::RequestHeaders,
    Attribute::RequestSize,
    Attribute::RequestTime,
    Attribute::RequestBody,
    Attribute::SourceAddress,
    Attribute::ConnectionMtls,
    Attribute::ResponseCode,
    Attribute::ResponseHeaders,
    Attribute::ConsumerGroups,
    Attribute::JwtClaims,
    Attribute::Metadata,
];

const MACROS: [Macro; 6] = [Macro::All, Macro::Exists, Macro::ExistsOne, Macro::Map, Macro::Filter, Macro::Unspecified];

/// One more than the number of the last function.
const FUNCTIONS: usize = 106;

const KEYS: [&str; 6] = ["x-user", "x-kind", "x-api-key", "a", "", "é"];

/// An expression while it is written: every call gives the new node's index.
#[derive(Debug, Default)]
pub struct Tree(Vec<parts::Node>);

impl Tree {
    /// What has been written; the last node is the root.
    pub fn finish(self) -> wire::Expression {
        wire::Expression { nodes: self.0 }
    }

    /// A text.
    pub fn text(&mut self, text: &str) -> u32 {
        self.constant(constant::Kind::String(text.to_owned()))
    }

    /// An integer.
    pub fn int(&mut self, number: i64) -> u32 {
        self.constant(constant::Kind::Int(number))
    }

    /// A whole attribute.
    pub fn attribute(&mut self, attribute: Attribute) -> u32 {
        self.push(node::Kind::Attribute(attribute.into()))
    }

    /// One entry of an attribute.
    pub fn member(&mut self, attribute: Attribute, key: &str) -> u32 {
        self.push(node::Kind::Member(parts::Member { attribute: attribute.into(), key: key.to_owned() }))
    }

    /// A call.
    pub fn call(&mut self, function: Function, arguments: &[u32]) -> u32 {
        self.push(node::Kind::Call(parts::Call { function: function.into(), arguments: arguments.to_vec() }))
    }

    fn constant(&mut self, kind: constant::Kind) -> u32 {
        self.push(node::Kind::Constant(parts::Constant { kind: Some(kind) }))
    }

    fn push(&mut self, kind: node::Kind) -> u32 {
        self.0.push(parts::Node { kind: Some(kind), column: 0 });
        u32::try_from(self.0.len() - 1).unwrap_or(u32::MAX)
    }
}

/// An expression that a script describes: well formed but for what the script does on purpose, of any meaning.
pub fn scripted(script: &mut Script<'_>) -> wire::Expression {
    let mut tree = Tree::default();
    let mut stack = Vec::new();
    for _ in 0..script.below(64) {
        let node = node(&mut tree, &mut stack, script);
        let index = tree.push(node);
        stack.push(index);
    }
    if stack.len() != 1 {
        tree.push(node::Kind::List(parts::List { elements: stack }));
    }
    tree.finish()
}

/// The next node, which may take earlier ones as its parts.
fn node(tree: &mut Tree, stack: &mut Vec<u32>, script: &mut Script<'_>) -> node::Kind {
    let mut operand = |script: &mut Script<'_>| stack.pop().unwrap_or_else(|| tree.constant(literal(script)));
    match script.below(16) {
        0..3 => node::Kind::Constant(parts::Constant { kind: Some(literal(script)) }),
        3 => node::Kind::Attribute(attribute(script)),
        4 => node::Kind::HasAttribute(attribute(script)),
        5 => node::Kind::Member(member(script)),
        6 => node::Kind::HasMember(member(script)),
        7 => node::Kind::Select(parts::Select { operand: operand(script), field: key(script) }),
        8 => node::Kind::Has(parts::Select { operand: operand(script), field: key(script) }),
        9 => node::Kind::List(parts::List { elements: (0..script.below(4)).map(|_| operand(script)).collect() }),
        10 => {
            let entries: (Vec<_>, Vec<_>) = (0..script.below(4)).map(|_| (operand(script), operand(script))).unzip();
            node::Kind::Map(parts::Map { keys: entries.0, values: entries.1 })
        }
        11 => {
            let (body, range) = (operand(script), operand(script));
            let filter = (script.below(3) == 2).then(|| operand(script));
            let kind = script.pick(&MACROS, Macro::Unspecified).into();
            node::Kind::Comprehension(parts::Comprehension { r#macro: kind, range, body, filter })
        }
        12 => node::Kind::Variable(script.below(3) as u32),
        _ => {
            let function = i32::try_from(script.below(FUNCTIONS)).unwrap_or_default();
            let known = Function::try_from(function).unwrap_or(Function::Add);
            let arity = postern_engine::cel::arity(known);
            let count = if script.flag() { *arity.end() } else { *arity.start() };
            let mut arguments: Vec<_> = (0..count).map(|_| operand(script)).collect();
            arguments.reverse();
            node::Kind::Call(parts::Call { function: known.into(), arguments })
        }
    }
}

fn literal(script: &mut Script<'_>) -> constant::Kind {
    match script.below(10) {
        0 => constant::Kind::Null(script.byte() != 1),
        1 => constant::Kind::Bool(script.flag()),
        2 => constant::Kind::Int(script.number().cast_signed()),
        3 => constant::Kind::Uint(script.number()),
        4 => constant::Kind::Double(f64::from_bits(script.number().rotate_right(12))),
        5 => constant::Kind::Bytes(script.chunk().to_vec()),
        6 => constant::Kind::Timestamp(parts::Timestamp {
            seconds: script.number().cast_signed(),
            nanoseconds: script.byte().into(),
        }),
        7 => constant::Kind::Duration(script.number().cast_signed()),
        _ => constant::Kind::String(script.text()),
    }
}

fn attribute(script: &mut Script<'_>) -> i32 {
    script.pick(&ATTRIBUTES, Attribute::Unspecified).into()
}

fn member(script: &mut Script<'_>) -> parts::Member {
    parts::Member { attribute: attribute(script), key: key(script) }
}

fn key(script: &mut Script<'_>) -> String {
    script.pick(&KEYS, "").to_owned()
}
