//! From the filter's words about a plan back to the resource that a user wrote. It owns the reading of those words, not
//! the decision.

use postern_proto::plan::v1::Plan as WirePlan;

use super::Refusal;
use crate::model::{Bundle, Diagnostic, Diagnostics, Resource, RoutePolicy, Step};

/// What a refusal says about resources; `None` if its words name nothing that a user wrote.
pub(crate) fn blame(refusal: &Refusal, plan: &WirePlan, bundle: &Bundle) -> Option<Diagnostics> {
    let Refusal::Declined(words) = refusal else { return None };
    let found = if let Some((chain, rest)) = chain(words) {
        steps(chain, rest, plan, bundle)
    } else if let Some((name, reason)) = named(words, "consumer") {
        whole(&bundle.consumers, name, reason)
    } else if let Some((name, reason)) = named(words, "issuer") {
        whole(&bundle.issuers, name, reason)
    } else {
        Vec::new()
    };
    Diagnostics::reject(found).err()
}

/// "chain 3: " and the rest.
fn chain(words: &str) -> Option<(u32, &str)> {
    let (index, rest) = words.strip_prefix("chain ")?.split_once(": ")?;
    Some((index.parse().ok()?, rest))
}

/// "consumer `alice`: " and the rest.
fn named<'a>(words: &'a str, what: &str) -> Option<(&'a str, &'a str)> {
    words.strip_prefix(what)?.strip_prefix(" `")?.split_once("`: ")
}

fn whole<T>(resources: &[Resource<T>], name: &str, reason: &str) -> Vec<Diagnostic> {
    let found = resources.iter().filter(|resource| resource.name == name);
    found.map(|resource| resource.diagnose("", message(reason))).collect()
}

/// A chain stands for all routes that have it; each policy of such a route has the step that is refused.
fn steps(chain: u32, words: &str, plan: &WirePlan, bundle: &Bundle) -> Vec<Diagnostic> {
    let (phases, words) = phases(words);
    let (step, reason) = named(words, "step").map_or((None, words), |(step, reason)| (Some(step), reason));
    let name = |index: u32| usize::try_from(index).ok().and_then(|index| plan.strings.get(index));
    let routes: Vec<_> =
        plan.routes.iter().filter(|route| route.chain == chain).map(|route| name(route.name)).collect();
    let concerned = |policy: &&Resource<RoutePolicy>| routes.contains(&Some(&policy.spec.target_ref.name));
    let diagnose = |policy: &Resource<RoutePolicy>| {
        let field = step.and_then(|step| phases.iter().find_map(|phase| field(policy, phase, step)));
        policy.diagnose(&field.unwrap_or_else(|| "spec".to_owned()), message(reason))
    };
    bundle.route_policies.iter().filter(concerned).map(diagnose).collect()
}

/// The phases that the words can be about.
fn phases(words: &str) -> (&'static [&'static str], &str) {
    let of = |phase: &str| words.strip_prefix(phase).and_then(|words| words.strip_prefix(": "));
    if let Some(words) = of("request") {
        (&["request"], words)
    } else if let Some(words) = of("response") {
        (&["response"], words)
    } else {
        (&["request", "response"], words)
    }
}

fn field(policy: &Resource<RoutePolicy>, phase: &str, name: &str) -> Option<String> {
    let steps: &[Step] = if phase == "request" { &policy.spec.request } else { &policy.spec.response };
    let index = steps.iter().position(|step| step.name == name)?;
    Some(format!("spec.{phase}[{index}]"))
}

fn message(reason: &str) -> String {
    format!("the filter refuses this: {reason}")
}
