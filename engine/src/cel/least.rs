//! The least that an expression costs, whatever the request is. An expression that costs more than a request may spend
//! would always exhaust its budget.

use postern_proto::plan::v1::expression::Macro;

use super::{
    budget::NODE,
    node::{Comprehension, Kind, Node},
    value::Value,
};
use crate::budget::steps;

/// The fewest steps on any path through a node that ends in a value.
pub(super) fn least(node: &Node) -> u64 {
    let parts = match &node.kind {
        Kind::Constant(_)
        | Kind::Attribute(_)
        | Kind::HasAttribute(_)
        | Kind::Member(..)
        | Kind::HasMember(..)
        | Kind::Variable(_) => 0,
        Kind::Select(operand, _) | Kind::Has(operand, _) => least(operand),
        Kind::List(elements) | Kind::Call(_, elements) => sum(elements.iter()),
        Kind::Map(entries) => sum(entries.iter().flat_map(|(key, value)| [key, value])),
        // The first operand may decide alone, or fail at once and leave it to the other.
        Kind::And(operands) | Kind::Or(operands) => {
            let [one, other] = &**operands;
            least(one).min(least(other).saturating_add(NODE))
        }
        Kind::Conditional(operands) => {
            let [condition, then, otherwise] = &**operands;
            least(condition).saturating_add(least(then).min(least(otherwise)))
        }
        Kind::Matches(subject, pattern) => least(subject).saturating_add(pattern.cost(0)),
        Kind::Comprehension(comprehension) => of_comprehension(comprehension),
    };
    parts.saturating_add(NODE)
}

fn sum<'n>(nodes: impl Iterator<Item = &'n Node>) -> u64 {
    nodes.map(least).fold(0, u64::saturating_add)
}

/// `all` and `exists` may end with the first element; the others look at each.
fn of_comprehension(comprehension: &Comprehension) -> u64 {
    let elements = match &comprehension.range.kind {
        Kind::Constant(Value::List(elements)) => elements.len(),
        Kind::List(elements) => elements.len(),
        _ => 0,
    };
    let looked_at = match comprehension.kind {
        Macro::All | Macro::Exists => elements.min(1),
        _ => elements,
    };
    let each = comprehension.filter.as_ref().map_or_else(|| least(&comprehension.body), least);
    least(&comprehension.range).saturating_add(each.saturating_mul(steps(looked_at)))
}
