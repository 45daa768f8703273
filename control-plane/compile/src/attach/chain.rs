//! Attachment of RoutePolicies: the chain of each route, with all steps that concern it merged by name.
//!
//! Less specific steps run first, and a step that a more specific resource changes keeps its place. Within a resource,
//! steps for some sources or destinations take precedence over those for all traffic.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, OnceLock},
};

use postern_base::diagnostic::quote;
use postern_engine::event::Phase;
use postern_model::{Chains, Diagnostic, Directed, Mode, Resource, RoutePolicy, Step, TargetRef};
use rustc_hash::FxHashMap;

use super::{
    candidates::{self, candidates},
    inherit::{Inherited, Withheld, Written, inherit},
    merge::Fields,
    permission::{self, Rule},
    scope::Scope,
    source::Source,
};
use crate::{expression::Expressions, params::Params};

/// The default of `maxBodySize`, in bytes.
const DEFAULT_BODY_SIZE: u32 = 256 * 1024;

/// The chains of a group of nodes.
#[derive(Debug, Default)]
pub struct Attachment<'a> {
    /// The chains. Routes may share one.
    pub chains: Vec<Attached<'a>>,
    /// The index of the chain of each declared or named route that has one.
    pub routes: BTreeMap<&'a str, usize>,
    /// The index of the chain of all routes that are not in `routes`. `None` if nothing is attached to them.
    pub default: Option<usize>,
    /// The expressions of the steps, for all who compile some of them.
    pub(crate) expressions: Arc<Expressions>,
}

impl Attachment<'_> {
    /// Whether a permission or a step selects sources by tags.
    pub fn selects_by_tags(&self) -> bool {
        let permissions =
            self.chains.iter().flat_map(|chain| &chain.permissions).filter_map(|rule| rule.source.as_ref());
        let steps = self.chains.iter().flat_map(|chain| chain.request.iter().chain(&chain.response));
        permissions.chain(steps.filter_map(|step| step.source.as_ref())).any(|source| !source.tags.is_empty())
    }
}

/// A chain as it is attached, before lowering.
#[derive(Debug)]
pub struct Attached<'a> {
    /// The rules about callers, by priority. Empty if no TrafficPermission concerns the route.
    pub permissions: Vec<Rule<'a>>,
    /// The steps of the request phase.
    pub request: Vec<EffectiveStep<'a>>,
    /// The steps of the response phase.
    pub response: Vec<EffectiveStep<'a>>,
    /// Whether the whole chain is in shadow mode.
    pub shadow: bool,
    /// The largest request body that is buffered, in bytes.
    pub body_limit: u32,
    /// Why some steps cannot be merged. A chain with errors is refused, or answers 500.
    pub errors: Vec<Diagnostic>,
    /// The policies of the chain that stand in for invalid resources. If there is one, every request is refused.
    pub refused: Vec<&'a Resource<RoutePolicy>>,
}

impl<'a> Attached<'a> {
    /// The steps of a phase.
    pub fn steps(&self, phase: Phase) -> &[EffectiveStep<'a>] {
        match phase {
            Phase::Request => &self.request,
            Phase::Response => &self.response,
        }
    }

    fn is_empty(&self) -> bool {
        let has_steps = !self.permissions.is_empty() || !self.request.is_empty() || !self.response.is_empty();
        !has_steps && self.errors.is_empty() && self.refused.is_empty()
    }
}

/// A merged step, with the origin of its fields.
#[derive(Debug)]
pub struct EffectiveStep<'a> {
    /// The step after merging.
    pub step: Cow<'a, Step>,
    /// The sources that it is for. `None` means all traffic.
    pub source: Option<Source>,
    /// Whether it is another candidate of the preceding step, for sources that that one does not select.
    pub alternative: bool,
    /// The steps that it is merged from, by priority: at least one.
    pub parts: Vec<Part<'a>>,
    /// The part that each field comes from. Empty if there is only one part.
    pub fields: Fields,
    /// Fields of the parts that were not inherited.
    pub withheld: Vec<Withheld>,
    /// The parsed parameters. Filled in when somebody asks for them first.
    params: OnceLock<Arc<serde_json::Result<Params>>>,
}

/// A step as a user wrote it, and where.
#[derive(Debug, Clone)]
pub struct Part<'a> {
    /// The resource that contains it.
    pub policy: &'a Resource<RoutePolicy>,
    /// The step itself.
    pub step: &'a Step,
    /// The sources that it is for. `None` means all traffic.
    pub source: Option<Source>,
    entry: Entry,
    phase: Phase,
    /// The index of the step in its list.
    index: usize,
}

/// The list of a policy that contains a chain.
#[derive(Debug, Clone, Copy)]
enum Entry {
    /// `spec.request` and `spec.response`, for all traffic.
    All,
    From(usize),
    To(usize),
}

impl fmt::Display for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => Ok(()),
            Self::From(index) => write!(formatter, "from[{index}]"),
            Self::To(index) => write!(formatter, "to[{index}]"),
        }
    }
}

impl Part<'_> {
    /// The path in its resource, such as `spec.from[0].request[1]`.
    pub fn field(&self) -> String {
        let phase = match self.phase {
            Phase::Request => "request",
            Phase::Response => "response",
        };
        match self.entry {
            Entry::All => format!("spec.{phase}[{}]", self.index),
            entry => format!("spec.{entry}.{phase}[{}]", self.index),
        }
    }

    /// The part of [`EffectiveStep::id`] for this step: the resource, and the entry in it.
    fn owner(&self) -> Cow<'_, str> {
        match self.entry {
            Entry::All => Cow::Borrowed(&self.policy.name),
            entry => Cow::Owned(format!("{}.{entry}", self.policy.name)),
        }
    }
}

impl<'a> EffectiveStep<'a> {
    /// The parameters with defaults. An error if the policy's schema accepts what its type does not.
    pub(crate) fn params(&self) -> Result<&Params, &serde_json::Error> {
        // A step that was not merged is the user's own, which outlives this compilation.
        let params = || self.step.derived.get_or_make(|| Params::parse(&self.step));
        (**self.params.get_or_init(params)).as_ref()
    }

    /// An error at a field of the step such as `params.key`, in the resource that the field comes from.
    pub fn diagnose(&self, field: &str, message: impl Into<String>) -> Option<Diagnostic> {
        let part = self.part_of(field)?;
        let field = if field.is_empty() { part.field() } else { format!("{}.{field}", part.field()) };
        Some(part.policy.diagnose(&field, message))
    }

    /// The part that a field comes from, by default the first.
    pub fn part_of(&self, field: &str) -> Option<&Part<'a>> {
        let index = self.fields.provider(field).map_or(0, |provided| provided.by);
        self.parts.get(index).or_else(|| self.parts.first())
    }

    /// An identifier that is stable across revisions as long as the step is merged from the same users' steps.
    pub fn id(&self) -> String {
        let owners: Vec<_> = self.parts.iter().map(Part::owner).collect();
        format!("{}/{}", owners.join("+"), self.step.name)
    }
}

/// The chains of a group of nodes.
pub fn attach<'a>(scope: &Scope<'a>) -> Attachment<'a> {
    attach_routes(scope, |_| true)
}

/// Like [`attach`], but only for routes for which `concerns` returns true, and for all unnamed routes.
pub fn attach_routes<'a>(scope: &Scope<'a>, concerns: impl Fn(&str) -> bool) -> Attachment<'a> {
    let mut attachment = Attachment::default();
    // The keys are indices and addresses, so that a fast hash suffices.
    let mut known = FxHashMap::default();
    let index = Index::new(scope);
    let mut place = |route: Option<&str>, declared: Option<&postern_model::Route>, attachment: &mut Attachment<'a>| {
        let concern = index.concern(scope, route, declared);
        let permissions: Vec<_> = permission::rules(scope, route);
        let permits =
            permissions.iter().map(|rule| (std::ptr::from_ref(rule.permission), rule.entry)).collect::<Vec<_>>();
        let key = (concern.iter().map(Concern::key).collect::<Vec<_>>(), permits);
        *known.entry(key).or_insert_with(|| {
            let chain = chain(&concern, permissions);
            (!chain.is_empty()).then(|| {
                attachment.chains.push(chain);
                attachment.chains.len().saturating_sub(1)
            })
        })
    };
    let declared = scope.gateways.iter().flat_map(|gateway| &gateway.spec.routes);
    let mut routes: BTreeMap<&'a str, Option<&'a postern_model::Route>> =
        declared.map(|route| (route.name.as_str(), Some(route))).collect();
    for route in scope.route_policies.iter().filter_map(|policy| policy.spec.target_ref.route()) {
        routes.entry(route).or_insert(None);
    }
    for route in scope.traffic_permissions.iter().filter_map(|permission| permission.spec.target_ref.route()) {
        routes.entry(route).or_insert(None);
    }
    for (route, declared) in routes.into_iter().filter(|(route, _)| concerns(route)) {
        if let Some(chain) = place(Some(route), declared, &mut attachment) {
            attachment.routes.insert(route, chain);
        }
    }
    attachment.default = place(None, None, &mut attachment);
    if attachment.default.is_some() || !scope.has_gateways() {
        // What is for incoming traffic alone must not come to local routes as the default, and where filters count
        // requests on routes without a chain, those of local routes are none to look at.
        let nothing = attachment.chains.len();
        let without = scope.local_routes().filter(|route| concerns(route) && !attachment.routes.contains_key(route));
        let without: Vec<_> = without.map(|route| (route, nothing)).collect();
        if !without.is_empty() {
            attachment.chains.push(chain(&[], Vec::new()));
            attachment.routes.extend(without);
        }
    }
    attachment
}

/// The indices of a scope's policies by the route that they target, in order of priority.
struct Index<'a> {
    everywhere: Vec<usize>,
    routes: HashMap<&'a str, Vec<usize>>,
}

/// A policy that concerns a route, and the indices of its `to` entries that do.
#[derive(Debug)]
struct Concern<'a> {
    policy: &'a Resource<RoutePolicy>,
    place: usize,
    to: Vec<usize>,
    /// Whether `from` entries apply: the requests come from other nodes.
    incoming: bool,
}

impl<'a> Concern<'a> {
    /// The `from` entries that apply.
    fn from(&self) -> &'a [Directed] {
        if self.incoming { &self.policy.spec.from } else { &[] }
    }

    fn key(&self) -> (usize, Vec<usize>, bool) {
        (self.place, self.to.clone(), self.incoming)
    }
}

impl<'a> Index<'a> {
    fn new(scope: &Scope<'a>) -> Self {
        let mut index = Self { everywhere: Vec::new(), routes: HashMap::new() };
        for (place, policy) in scope.route_policies.iter().enumerate() {
            match policy.spec.target_ref.route() {
                Some(route) => index.routes.entry(route).or_default().push(place),
                None => index.everywhere.push(place),
            }
        }
        index
    }

    /// The policies that concern a route, by priority. Entries for services apply to declared routes only, because the
    /// services of other routes are unknown.
    fn concern(
        &self,
        scope: &Scope<'a>,
        route: Option<&str>,
        declared: Option<&postern_model::Route>,
    ) -> Vec<Concern<'a>> {
        let own = route.and_then(|route| self.routes.get(route)).into_iter().flatten();
        let mut places: Vec<_> = self.everywhere.iter().chain(own).copied().collect();
        places.sort_unstable();
        let selects = |target: &TargetRef| match target {
            TargetRef::Mesh => true,
            target => {
                target.route().is_some_and(|target| Some(target) == route)
                    || declared.is_some_and(|declared| declared.goes_to(target.service()))
            }
        };
        let concern = |place: usize| {
            let policy = *scope.route_policies.get(place)?;
            let to = policy.spec.to.iter().enumerate().filter(|(_, entry)| selects(&entry.target_ref));
            let of_the_route = policy.spec.target_ref.route().is_some();
            let incoming = of_the_route || !route.is_some_and(|route| scope.is_local(route));
            Some(Concern { policy, place, incoming, to: to.map(|(entry, _)| entry).collect() })
        };
        places.into_iter().filter_map(concern).collect()
    }
}

/// Merges the policies that concern a route, given by priority, into one chain.
fn chain<'a>(concern: &[Concern<'a>], permissions: Vec<Rule<'a>>) -> Attached<'a> {
    let enforced = |concern: &Concern<'_>| concern.policy.spec.mode == Mode::Enforce;
    // Permissions are always enforced. With permissions, `shadow` is set on each step instead of the chain.
    let shadow = permissions.is_empty() && !concern.is_empty() && !concern.iter().any(enforced);
    let mut errors = Vec::new();
    let request = steps(concern, Phase::Request, shadow, &mut errors);
    let response = steps(concern, Phase::Response, shadow, &mut errors);
    let refused = concern.iter().map(|concern| concern.policy).filter(|policy| policy.spec.refused).collect();
    let body_limit = concern.iter().find_map(|concern| concern.policy.spec.max_body_size);
    let body_limit = body_limit.unwrap_or(DEFAULT_BODY_SIZE);
    Attached { permissions, request, response, shadow, body_limit, errors, refused }
}

fn steps<'a>(
    concern: &[Concern<'a>],
    phase: Phase,
    shadow: bool,
    errors: &mut Vec<Diagnostic>,
) -> Vec<EffectiveStep<'a>> {
    let named = by_name(concern, phase);
    let mut found = Vec::with_capacity(named.len());
    for (name, parts) in named {
        // The common case: no sources.
        if parts.iter().all(|part| part.source.is_none()) {
            match effective(parts, None, false, shadow) {
                Ok(step) => found.push(step),
                Err(error) => errors.push(error),
            }
            continue;
        }
        let sources = parts.iter().map(|part| part.source.as_ref()).enumerate();
        let Some(candidates) = candidates(sources) else {
            let message =
                format!("step {} has more than {} overlapping entries for its sources", quote(name), candidates::MOST);
            errors.extend(parts.first().map(|part| part.policy.diagnose(&part.field(), message)));
            continue;
        };
        for (index, candidate) in candidates.into_iter().enumerate() {
            let parts: Vec<_> = candidate.parts.iter().filter_map(|part| parts.get(*part)).cloned().collect();
            match effective(parts, candidate.source, index > 0, shadow) {
                Ok(step) => found.push(step),
                Err(error) => errors.push(error),
            }
        }
    }
    found
}

/// The parts of all steps by name, in the order in which the steps run. The parts of a step are sorted by priority.
fn by_name<'a>(concern: &[Concern<'a>], phase: Phase) -> Vec<(&'a str, Vec<Part<'a>>)> {
    let mut named: Vec<_> = order(concern, phase).into_iter().map(|name| (name, Vec::new())).collect();
    // Consecutive parts mostly have the order of the steps, so the search starts behind the last match.
    let mut next = 0;
    for part in concern.iter().flat_map(|concern| parts_of(concern, phase)) {
        let (before, after) = named.split_at_mut(next);
        let place = |list: &[(&str, Vec<Part<'_>>)]| list.iter().position(|(name, _)| *name == part.step.name);
        let Some(found) = place(after).map(|place| place.saturating_add(next)).or_else(|| place(before)) else {
            continue;
        };
        next = found.saturating_add(1);
        if let Some((_, parts)) = named.get_mut(found) {
            parts.reserve_exact(1);
            parts.push(part);
        }
    }
    named
}

/// The names of all steps in the order in which they run.
fn order<'a>(concern: &[Concern<'a>], phase: Phase) -> Vec<&'a str> {
    let mut policies: Vec<_> = concern.iter().collect();
    policies.sort_by_key(|concern| (concern.policy.spec.target_ref.level(), concern.policy.name.as_str()));
    let mut names: Vec<&'a str> = Vec::new();
    for concern @ Concern { policy, to, .. } in policies {
        let spec = &policy.spec;
        let to = to.iter().filter_map(|entry| spec.to.get(*entry));
        let chains = [&spec.chains].into_iter().chain(to.chain(concern.from()).map(|entry| &entry.chains));
        for step in chains.flat_map(|chains: &Chains| chains.of(phase)) {
            if !names.contains(&step.name.as_str()) {
                names.push(&step.name);
            }
        }
    }
    names
}

/// The steps of one policy by priority: for sources, then for destinations, then for all traffic.
fn parts_of<'a>(concern: &Concern<'a>, phase: Phase) -> Vec<Part<'a>> {
    let policy = concern.policy;
    let mut parts = Vec::new();
    let mut add = |chains: &'a Chains, entry: Entry, source: Option<Source>| {
        let steps = chains.of(phase).iter().enumerate();
        parts.extend(steps.map(|(index, step)| Part { policy, step, source: source.clone(), entry, phase, index }));
    };
    for (index, entry) in concern.from().iter().enumerate() {
        add(&entry.chains, Entry::From(index), Source::of(&entry.target_ref, policy.mesh()));
    }
    for index in &concern.to {
        if let Some(entry) = policy.spec.to.get(*index) {
            add(&entry.chains, Entry::To(*index), None);
        }
    }
    add(&policy.spec.chains, Entry::All, None);
    parts
}

/// Merges the parts of a step, or returns the error that prevents it.
fn effective<'a>(
    parts: Vec<Part<'a>>,
    source: Option<Source>,
    alternative: bool,
    shadow: bool,
) -> Result<EffectiveStep<'a>, Diagnostic> {
    let (step, fields, withheld) = match parts.as_slice() {
        [part] if mode(part, shadow) == part.step.mode => (Cow::Borrowed(part.step), Fields::default(), Vec::new()),
        all => {
            let parts = all.iter().enumerate();
            let written = parts.map(|(index, part)| Written { index, step: part.step, mode: mode(part, shadow) });
            let Inherited { step, fields, withheld } = inherit(&written.collect::<Vec<_>>());
            (Cow::Owned(step), fields, withheld)
        }
    };
    let step = EffectiveStep { step, source, alternative, parts, fields, withheld, params: OnceLock::new() };
    // It may still lack a required parameter.
    match step.step.missing() {
        None => Ok(step),
        Some(missing) => {
            let others = step.parts.len() > 1;
            let context = if others { ", also in what it is merged with" } else { "" };
            Err(step.diagnose("params", format!("{missing}{context}")).unwrap_or_default())
        }
    }
}

/// The mode of a step by its own resource. `None` if neither sets one, or if the whole chain is in shadow mode anyway.
fn mode(part: &Part<'_>, shadow: bool) -> Option<Mode> {
    let of_resource = (!shadow && part.policy.spec.mode == Mode::Shadow).then_some(Mode::Shadow);
    part.step.mode.or(of_resource)
}
