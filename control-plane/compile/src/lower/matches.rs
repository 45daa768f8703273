//! Lowers the matches of routes that have no names in Envoy: in normal form, each with its place in the order of all.

use std::collections::BTreeSet;

use postern_base::{diagnostic::quote, uri::escaped_bytes};
use postern_engine::{
    cel::Pattern,
    matching::{Segment, Shape, Specificity},
};
use postern_model::{Resource, RoutePolicy};
use postern_proto::plan::v1::Match;

use super::Lowering;
use crate::attach::Scope;

/// The length of a path for which all regular expressions together must be affordable.
const PATH_SIZE: usize = 256;

impl Lowering {
    /// Adds the matches of a scope. If their regular expressions can cost more than a request may, records an error at the
    /// first that is too much.
    pub(super) fn matches(&mut self, scope: &Scope<'_>) {
        let (mut lowered, mut cost) = (Vec::new(), 0);
        for policy in &scope.route_policies {
            let (Some(route), Some(matching)) = (policy.spec.target_ref.route(), &policy.spec.matching) else {
                continue;
            };
            for (host, shape, method) in matching.claims() {
                if let Shape::Regex(text) = &shape {
                    self.affordable(policy, text, &mut cost);
                }
                let specificity = Specificity::of(&host, &shape, method.is_some());
                lowered.push((specificity, self.matching(route, &host, &shape, method)));
            }
        }
        let ranks: BTreeSet<_> = lowered.iter().map(|(specificity, _)| specificity.clone()).collect();
        let ranks: Vec<_> = ranks.into_iter().collect();
        for (specificity, matching) in lowered {
            let rank = ranks.binary_search(&specificity).unwrap_or_default();
            self.plan.matches.push(Match { rank: u32::try_from(rank).unwrap_or(u32::MAX), ..matching });
        }
    }

    fn affordable(&mut self, policy: &Resource<RoutePolicy>, text: &str, cost: &mut u64) {
        let pattern = Pattern::compile(&whole(text));
        *cost = cost.saturating_add(pattern.map_or(0, |pattern| pattern.cost(PATH_SIZE)));
        let (cost, steps) = (*cost, self.steps_of_request());
        if cost > steps {
            let message = format!(
                "with {} the regular expressions of all matches take {cost} steps for a path of {PATH_SIZE} bytes, and a \
                 request has {steps}: use `prefix` or `template`",
                quote(text)
            );
            self.errors.push(policy.diagnose("spec.match.path.regex", message));
        }
    }

    fn matching(&mut self, route: &str, host: &str, shape: &Shape, method: Option<&str>) -> Match {
        let mut lowered = Match { route: self.string(route), host: self.string(host), ..Match::default() };
        lowered.method = method.map_or(0, |method| self.string(method).saturating_add(1));
        match shape {
            Shape::Regex(text) => lowered.regex = self.string(&whole(text)).saturating_add(1),
            Shape::Segments { segments, is_start } => {
                let text = |segment: &Segment| match segment {
                    Segment::Any => 0,
                    Segment::Text(text) => self.string(&escaped_bytes(text)).saturating_add(1),
                };
                lowered.segments = segments.iter().map(text).collect();
                lowered.is_start = *is_start;
            }
        }
        lowered
    }
}

/// A regular expression for a whole text.
fn whole(text: &str) -> String {
    format!("^(?:{text})$")
}
