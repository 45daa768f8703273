//! From the filter's words about a plan back to the resource that a user wrote. It owns the reading of those words, not
//! the decision.

use postern_engine::Phase;
use postern_proto::plan::v1::Plan as WirePlan;

use super::Refusal;
use crate::{
    attach::{Attached, Attachment, EffectiveStep, Scope},
    model::{Diagnostic, Diagnostics, Resource},
};

/// What a refusal says about resources; `None` if its words name nothing that a user wrote.
pub(crate) fn blame(
    refusal: &Refusal,
    plan: &WirePlan,
    scope: &Scope<'_>,
    attachment: &Attachment<'_>,
) -> Option<Diagnostics> {
    let Refusal::Declined(words) = refusal else { return None };
    let found = if let Some((chain, rest)) = chain(words) {
        steps(chain, rest, plan, attachment)
    } else if let Some((name, reason)) = named(words, "consumer") {
        whole(&scope.consumers, name, reason)
    } else if let Some((name, reason)) = named(words, "issuer") {
        whole(&scope.issuers, name, reason)
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

fn whole<T>(resources: &[&Resource<T>], name: &str, reason: &str) -> Vec<Diagnostic> {
    let found = resources.iter().filter(|resource| resource.name == name);
    found.map(|resource| resource.diagnose("", message(reason))).collect()
}

/// A chain stands for all routes that have it; in each, the step that is refused is at fault, or whoever had a say.
fn steps(chain: u32, words: &str, plan: &WirePlan, attachment: &Attachment<'_>) -> Vec<Diagnostic> {
    let (phases, words) = phases(words);
    let (step, reason) = named(words, "step").map_or((None, words), |(step, reason)| (Some(step), reason));
    let name = |index: u32| usize::try_from(index).ok().and_then(|index| plan.strings.get(index));
    let routes = plan.routes.iter().filter(|route| route.chain == chain).filter_map(|route| name(route.name));
    let places = routes.filter_map(|route| attachment.routes.get(route.as_str()).copied());
    let default = attachment.default.filter(|_| plan.default_chain == chain.saturating_add(1));
    let chains = places.chain(default).filter_map(|place| attachment.chains.get(place));
    let at_fault = |attached: &Attached<'_>| -> Vec<Diagnostic> {
        let steps = || phases.iter().flat_map(|phase| attached.steps(*phase));
        match step {
            Some(name) => {
                let named = steps().filter(|found| found.step.name == name);
                named.filter_map(|step: &EffectiveStep<'_>| step.diagnose("", message(reason))).collect()
            }
            None => {
                let policies = steps().flat_map(|step| &step.parts).map(|part| part.policy);
                policies.map(|policy| policy.diagnose("spec", message(reason))).collect()
            }
        }
    };
    chains.flat_map(at_fault).collect()
}

/// The phases that the words can be about.
fn phases(words: &str) -> (&'static [Phase], &str) {
    let of = |phase: &str| words.strip_prefix(phase).and_then(|words| words.strip_prefix(": "));
    if let Some(words) = of("request") {
        (&[Phase::Request], words)
    } else if let Some(words) = of("response") {
        (&[Phase::Response], words)
    } else {
        (&[Phase::Request, Phase::Response], words)
    }
}

fn message(reason: &str) -> String {
    format!("the filter refuses this: {reason}")
}
