//! Maps the site of a refusal in a plan back to the resources that users wrote. It makes no decision about the plan.

use std::slice;

use postern_engine::{Phase, Site};
use postern_model::{Diagnostic, Diagnostics, Resource};
use postern_proto::plan::v1::Plan as WirePlan;

use super::Refusal;
use crate::attach::{Attached, Attachment, EffectiveStep, Scope};

/// The errors at the resources in question. `None` if the site does not come from a resource.
pub(crate) fn blame(
    refusal: &Refusal,
    plan: &WirePlan,
    scope: &Scope<'_>,
    attachment: &Attachment<'_>,
) -> Option<Diagnostics> {
    let Refusal::Declined { site, words } = refusal else { return None };
    let found = match site {
        Site::Elsewhere => Vec::new(),
        Site::Chain { index, phase, step } => {
            let phases: &[Phase] = phase.as_ref().map_or(&[Phase::Request, Phase::Response], slice::from_ref);
            let chains = attached(*index, plan, attachment);
            chains.flat_map(|chain| at_fault(chain, phases, step.as_deref(), words)).collect()
        }
        Site::Consumer(name) => whole(&scope.consumers, name, words),
        Site::Issuer(name) => whole(&scope.issuers, name, words),
    };
    Diagnostics::reject(found).err()
}

fn whole<T>(resources: &[&Resource<T>], name: &str, reason: &str) -> Vec<Diagnostic> {
    let found = resources.iter().filter(|resource| resource.name == name);
    found.map(|resource| resource.diagnose("", message(reason))).collect()
}

/// The attached chains that were lowered to the plan's chain with this index. Equal chains are one in the plan.
fn attached<'a>(
    index: usize,
    plan: &'a WirePlan,
    attachment: &'a Attachment<'a>,
) -> impl Iterator<Item = &'a Attached<'a>> {
    let name = |index: u32| usize::try_from(index).ok().and_then(|index| plan.strings.get(index));
    let is_it = move |chain: u32| usize::try_from(chain).is_ok_and(|chain| chain == index);
    let routes = plan.routes.iter().filter(move |route| is_it(route.chain)).filter_map(move |route| name(route.name));
    let places = routes.filter_map(|route| attachment.routes.get(route.as_str()).copied());
    let default = attachment.default.filter(|_| plan.default_chain.checked_sub(1).is_some_and(is_it));
    places.chain(default).filter_map(|place| attachment.chains.get(place))
}

/// The errors for a chain: at the step with this name, or at all policies of the chain if the site names no step.
fn at_fault(chain: &Attached<'_>, phases: &[Phase], step: Option<&str>, words: &str) -> Vec<Diagnostic> {
    let steps = || phases.iter().flat_map(|phase| chain.steps(*phase));
    match step {
        Some(name) => {
            let named = steps().filter(|found| found.step.name == name);
            named.filter_map(|step: &EffectiveStep<'_>| step.diagnose("", message(words))).collect()
        }
        None => {
            let policies = steps().flat_map(|step| &step.parts).map(|part| part.policy);
            policies.map(|policy| policy.diagnose("spec", message(words))).collect()
        }
    }
}

fn message(reason: &str) -> String {
    format!("the filter refuses this: {reason}")
}
