//! The least that a check costs, whatever document is checked.

use super::{
    Schema, Schemas,
    evaluate::{MAX_DEPTH, SCHEMA},
};

/// What is known of a schema while the least costs are computed.
#[derive(Clone, Copy)]
enum LeastCost {
    Nothing,
    /// It is being computed. A schema that leads back to itself ends by its depth, if at all.
    UnderWay,
    Cost(u64),
}

impl Schemas {
    /// The fewest steps after which a document can be found valid.
    pub(crate) fn least_cost(&self) -> u64 {
        let mut known = vec![LeastCost::Nothing; self.0.len()];
        self.least_of(0, 0, &mut known)
    }

    fn least_of(&self, index: usize, depth: usize, known: &mut [LeastCost]) -> u64 {
        let (Some(schema), Some(place)) = (self.0.get(index), known.get_mut(index)) else { return 0 };
        match place {
            LeastCost::Cost(cost) => return *cost,
            // One that is further down is never reached: a check ends before.
            LeastCost::Nothing if depth >= MAX_DEPTH => return 0,
            LeastCost::UnderWay => return 0,
            LeastCost::Nothing => *place = LeastCost::UnderWay,
        }
        let cost = if schema.always.is_some() {
            SCHEMA
        } else {
            self.parts(schema, depth.saturating_add(1), known).saturating_add(SCHEMA)
        };
        if let Some(place) = known.get_mut(index) {
            *place = LeastCost::Cost(cost);
        }
        cost
    }

    /// The cost of subschemas that apply to the same value: `$ref`, `not` and the test of `if`, all of `allOf`, and the
    /// first of `anyOf` and of `oneOf`.
    fn parts(&self, schema: &Schema, depth: usize, known: &mut [LeastCost]) -> u64 {
        let all = schema.reference.iter().chain(&schema.all_of).chain(&schema.not);
        let mut sum = all.map(|index| self.least_of(*index, depth, known)).fold(0, u64::saturating_add);
        for choices in [&schema.any_of, &schema.one_of] {
            sum = sum.saturating_add(choices.first().map_or(0, |index| self.least_of(*index, depth, known)));
        }
        let test = schema.condition.as_ref().map_or(0, |condition| self.least_of(condition.test, depth, known));
        sum.saturating_add(test)
    }
}
