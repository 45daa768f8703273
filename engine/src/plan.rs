//! The loaded plan. Loading checks everything, and refuses the whole plan for one bad part, so that nothing is checked
//! again later.

use std::{
    borrow::Borrow,
    hash::{Hash, Hasher},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use postern_proto::plan::v1::{self as wire, FORMAT, OLDEST_FORMAT};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    agent::Agent,
    answers,
    budget::{self, Budget},
    chain::Chain,
    consumers::Consumers,
    directory::Directory,
    edited::EditedHeaders,
    event::Headers,
    jwt::Issuer,
    load_error::{LoadError, PlanPart},
    matching::{Matches, Requested, Unclear},
    placement::Placement,
    policy::Known,
    replays::Replays,
    strings::{Strings, find},
    verdict::Response,
};

/// All that a filter needs to decide requests.
#[derive(Debug)]
pub struct Plan {
    directory: Directory,
    /// The routes that have a chain. No caller chooses the names of routes, and API keys are looked up by digest, so
    /// nobody can cause collisions: a fast hash will do, here and for [`Consumers`].
    routes: FxHashMap<RouteName, Guarded>,
    chains: Vec<Chain>,
    /// The chain of every other route.
    default_chain: Option<usize>,
    /// All routes that exist; `None` if there may be others.
    declared: Option<Declared>,
    /// The routes by their names without marks, if `routes` has marked names.
    unmarked: Option<FxHashMap<RouteName, Guarded>>,
    /// The routes that are found by what a request asks for. `None` if there are none.
    matches: Option<Matches>,
    /// The request headers that routes match on, if the operator lists them.
    matched_headers: Option<Vec<Arc<str>>>,
    /// Whether no access log shows accounts.
    silent: bool,
    /// Whether routes are counted.
    count_routes: bool,
    /// Whether `first_used` is not empty.
    has_first_used: AtomicBool,
    /// Routes that were used for the first time, until the host takes them.
    first_used: Mutex<Vec<Arc<str>>>,
    policy_not_supported: Response,
    /// The budget of a request, in steps.
    steps: u64,
}

/// A route that has a chain.
#[derive(Debug)]
struct Guarded {
    /// Its name without the mark.
    name: Arc<str>,
    chain: usize,
    /// Whether a message has come on it, or routes are not counted.
    used: AtomicBool,
}

impl Plan {
    /// Loads an encoded plan, whole or not at all.
    pub fn load(bytes: &[u8]) -> Result<Self, LoadError> {
        let wire = postern_proto::decode_plan(bytes).map_err(LoadError::Decode)?;
        // A plan in an older format than it needs was made by a control plane that does not know what it says.
        if !(OLDEST_FORMAT..=FORMAT).contains(&wire.format) || wire.format < wire.least_format() {
            return Err(LoadError::Format(wire.format));
        }
        let strings = Strings::load(wire.strings, &wire.expressions)?;
        let agents = wire.agents.iter().map(|agent| Agent::load(agent, &strings)).collect::<Result<Vec<_>, _>>()?;
        let issuer = |issuer| Issuer::load(issuer, &strings).map(Arc::new);
        let issuers = wire.issuers.iter().map(issuer).collect::<Result<Vec<_>, _>>()?;
        let load = |(index, chain)| {
            Chain::load(chain, Known { strings: &strings, agents: &agents, issuers: &issuers })
                .map_err(|error| error.within(PlanPart::Chain(index)))
        };
        let chains = wire.chains.iter().enumerate().map(load).collect::<Result<Vec<_>, _>>()?;
        let steps = if wire.steps == 0 { budget::STEPS } else { wire.steps };
        for (index, chain) in chains.iter().enumerate() {
            chain.check_cost(steps).map_err(|error| error.within(PlanPart::Chain(index)))?;
        }
        let answer = |wire: &Option<wire::Answer>, default: fn() -> Response| match wire {
            Some(wire) => strings.answer(wire),
            None => Ok(default()),
        };
        let routes = load_routes(&wire.routes, &strings, &chains, wire.count_routes)?;
        let default_chain = load_default_chain(wire.default_chain, &chains)?;
        let chain_of = |route: &str| routes.get(route.as_bytes()).map(|route| route.chain).or(default_chain);
        let matches = Matches::load(&wire.matches, &strings, chain_of)?;
        let request_steps = chains.iter().flat_map(|chain| &chain.request.steps);
        Ok(Self {
            directory: Directory {
                label: wire.label.into(),
                consumers: Consumers::load(&wire.consumers, &strings)?,
                replays: Replays::new(request_steps.filter_map(|step| step.policy.replays())),
                agent_unavailable: answer(&wire.agent_unavailable, answers::agent_unavailable)?,
                agents,
            },
            routes,
            matches: (!wire.matches.is_empty()).then_some(matches),
            unmarked: None,
            declared: wire.declared_routes.map(|declared| Declared::load(&declared, &strings)).transpose()?,
            matched_headers: wire
                .matched_headers
                .map(|matched| load_matched_headers(&matched, &strings))
                .transpose()?,
            silent: wire.silent,
            count_routes: wire.count_routes,
            has_first_used: AtomicBool::new(false),
            first_used: Mutex::default(),
            default_chain,
            policy_not_supported: answer(&wire.policy_not_supported, answers::policy_not_supported)?,
            steps,
            chains,
        })
    }

    /// The plan for one placement. In a listener of a Gateway, all routes are known, their names have marks, and no
    /// route is found by a match; elsewhere none of that holds.
    #[must_use]
    pub fn placed(mut self, placement: Placement) -> Self {
        if placement == Placement::Gateway {
            self.matches = None;
        }
        let Some(declared) = self.declared.filter(|_| placement == Placement::Gateway) else {
            return Self { declared: None, ..self };
        };
        let known = |marked: &Arc<str>| self.routes.get(plain(marked).as_bytes());
        let route = |marked: &Arc<str>| Some((RouteName(Arc::clone(marked)), known(marked)?.again()));
        let routes = declared.guarded.iter().filter_map(route).collect();
        Self { routes, declared: Some(declared), unmarked: Some(self.routes), ..self }
    }

    /// The plan's label. Equal plans have equal labels, whatever revision they belong to.
    pub fn label(&self) -> &str {
        &self.directory.label
    }

    /// Whether an access log shows the accounts of decisions.
    pub fn wants_accounts(&self) -> bool {
        !self.silent
    }

    /// How many routes have a chain.
    pub fn routes(&self) -> usize {
        self.routes.len()
    }

    /// How many chains there are. A chain's index is less than this.
    pub fn chains(&self) -> usize {
        self.chains.len()
    }

    /// The index of a route's chain, which may be the default chain. `None` if its requests pass unguarded.
    pub fn chain_of(&self, route: impl AsRef<[u8]>) -> Option<usize> {
        let route = route.as_ref();
        let default = || self.default_chain.filter(|_| !self.is_foreign(route));
        self.routes.get(route).map(|guarded| guarded.chain).or_else(default)
    }

    /// Whether a request on a route of this name may be on another one by what it asks for: the plan has matches, and
    /// does not know the name.
    pub fn goes_by_match(&self, route: &[u8]) -> bool {
        self.matches.is_some() && !self.routes.contains_key(route)
    }

    /// The route of a request by what it asks for, if its name [does not tell](Self::goes_by_match). `None` if no match
    /// fits, so that it is on the route that Envoy says.
    pub fn matched_route(&self, requested: &Requested<'_>) -> Result<Option<&Arc<str>>, Unclear> {
        self.matches.as_ref().map_or(Ok(None), |matches| matches.route(requested, &Budget::new(self.steps)))
    }

    /// The index of the chain of a request that was admitted, by the name of its route in Envoy and its headers.
    pub fn chain_for(&self, route: &[u8], headers: &Headers) -> Option<usize> {
        match self.goes_by_match(route).then(|| self.matched_route(&Requested::of(headers))) {
            Some(Ok(Some(matched))) => self.chain_of(matched.as_bytes()),
            _ => self.chain_of(route),
        }
    }

    /// The request headers that the chain with this index may set, add, remove or strip, in shadow mode too. Empty if
    /// there is no such chain.
    pub fn edited_request_headers(&self, chain: usize) -> EditedHeaders {
        let steps = self.chains.get(chain).map(|chain| chain.request.steps.as_slice()).unwrap_or_default();
        steps.iter().map(|step| step.policy.edits()).collect()
    }

    /// Like [`Self::edited_request_headers`], for each request step that edits any, with the step's name.
    pub fn editing_steps(&self, chain: usize) -> impl Iterator<Item = (&str, EditedHeaders)> {
        let steps = self.chains.get(chain).map(|chain| chain.request.steps.as_slice()).unwrap_or_default();
        let edits = steps.iter().map(|step| (&*step.name, [step.policy.edits()].into_iter().collect()));
        edits.filter(|(_, edits): &(&str, EditedHeaders)| !edits.is_empty())
    }

    /// Whether requests on routes without a chain, and first uses of the others, are counted.
    pub fn counts_routes(&self) -> bool {
        self.count_routes
    }

    /// The names of the routes that have a chain, in no particular order.
    pub fn route_names(&self) -> impl Iterator<Item = &str> {
        self.routes.keys().map(|RouteName(name)| &**name)
    }

    /// Whether the plan names this route.
    pub fn names_route(&self, name: &[u8]) -> bool {
        self.routes.contains_key(name)
    }

    /// Takes the routes that were used for the first time since the last call. `None` if there are none, or if routes
    /// are not counted.
    #[inline]
    pub fn take_first_used(&self) -> Option<Vec<Arc<str>>> {
        if self.has_first_used.load(Relaxed) { Some(self.drain_first_used()) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn drain_first_used(&self) -> Vec<Arc<str>> {
        self.has_first_used.store(false, Relaxed);
        std::mem::take(&mut self.first_used.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes that a route is used. Each route is noted once.
    #[cold]
    #[inline(never)]
    fn note_use(&self, route: &Guarded) {
        if !route.used.swap(true, Relaxed) {
            self.first_used.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&route.name));
            self.has_first_used.store(true, Relaxed);
        }
    }

    /// The names of the agents that chains call, in the order of the plan.
    pub fn agent_names(&self) -> impl Iterator<Item = &str> {
        self.directory.agents.iter().map(|agent| &*agent.name)
    }

    /// The names of the shared values that a host should create before the first request, so that even the first
    /// compare-and-swap on them is exact.
    pub fn shared_keys(&self) -> impl Iterator<Item = Arc<str>> {
        let steps = self.chains.iter().flat_map(|chain| &chain.request.steps);
        steps.filter_map(|step| step.policy.shared_key())
    }

    /// The name and chain of a route. A route that the plan does not name has the default chain, unless it is
    /// [foreign](Self::is_foreign). `None` if there is no chain: its requests pass.
    #[inline]
    pub(crate) fn route(&self, name: &[u8]) -> Option<(Arc<str>, usize)> {
        match self.routes.get(name) {
            Some(route) => {
                if !route.used.load(Relaxed) {
                    self.note_use(route);
                }
                Some((Arc::clone(&route.name), route.chain))
            }
            // One that is no text is none that anybody knows by name.
            None if self.is_foreign(name) => None,
            None => self.default_chain.map(|chain| (self.shown(name).into(), chain)),
        }
    }

    /// The name and chain of a route whose request was admitted, by the name that [`Self::route`] returned.
    pub(crate) fn admitted_route(&self, name: &str) -> Option<(Arc<str>, usize)> {
        let routes = self.unmarked.as_ref().unwrap_or(&self.routes);
        match routes.get(name.as_bytes()) {
            Some(route) => Some((Arc::clone(&route.name), route.chain)),
            None => self.default_chain.map(|chain| (name.into(), chain)),
        }
    }

    /// Whether the plan declares all routes, and this one is not among them. The route table is then older or newer
    /// than the plan, and it is unknown what guards the route. A request that takes no route has an empty name, and is
    /// not foreign.
    pub fn is_foreign(&self, route: &[u8]) -> bool {
        let unlisted = |declared: &Declared| !declared.open.contains(route) && !self.routes.contains_key(route);
        !route.is_empty() && self.declared.as_ref().is_some_and(unlisted)
    }

    /// A route's name for people: without its mark.
    pub fn shown<'r>(&self, route: &'r [u8]) -> &'r str {
        let name = str::from_utf8(route).unwrap_or_default();
        if self.declared.is_some() { plain(name) } else { name }
    }

    /// Whether the chain of a route, if it has one, may edit a request header that could make Envoy choose another
    /// route: one that the operator lists or, without such a list, any.
    pub fn may_change_route(&self, route: impl AsRef<[u8]>) -> bool {
        self.chain_of(route).is_some_and(|chain| self.edits_matched_header(chain))
    }

    fn edits_matched_header(&self, chain: usize) -> bool {
        edits_matched_header(&self.edited_request_headers(chain), self.matched_headers.as_deref())
    }

    /// Whether a plan has a chain that [may change the route](Self::may_change_route). Loads chains only until one may,
    /// and nothing else of the plan.
    pub fn needs_verification(wire: &wire::Plan) -> Result<bool, LoadError> {
        let strings = Strings::load(wire.strings.clone(), &wire.expressions)?;
        let matched =
            wire.matched_headers.as_ref().map(|matched| load_matched_headers(matched, &strings)).transpose()?;
        let agents = wire.agents.iter().map(|agent| Agent::load(agent, &strings)).collect::<Result<Vec<_>, _>>()?;
        let issuer = |issuer| Issuer::load(issuer, &strings).map(Arc::new);
        let issuers = wire.issuers.iter().map(issuer).collect::<Result<Vec<_>, _>>()?;
        for chain in &wire.chains {
            let chain = Chain::load(chain, Known { strings: &strings, agents: &agents, issuers: &issuers })?;
            let edited = chain.request.steps.iter().map(|step| step.policy.edits()).collect();
            if edits_matched_header(&edited, matched.as_deref()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) fn chain(&self, index: usize) -> Option<&Chain> {
        self.chains.get(index)
    }

    /// The budget of a request, without what its steps declare and its body allows.
    #[inline]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    pub(crate) fn policy_not_supported(&self) -> &Response {
        &self.policy_not_supported
    }
}

/// A route's name that is looked up by bytes, so that the name from Envoy need not be checked for UTF-8.
#[derive(Debug, PartialEq, Eq)]
struct RouteName(Arc<str>);

impl Borrow<[u8]> for RouteName {
    fn borrow(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Hashes like the bytes that it is looked up by.
impl Hash for RouteName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_bytes().hash(state);
    }
}

fn load_routes(
    routes: &[wire::Route],
    strings: &Strings,
    chains: &[Chain],
    counted: bool,
) -> Result<FxHashMap<RouteName, Guarded>, LoadError> {
    let mut loaded = FxHashMap::with_capacity_and_hasher(routes.len(), Default::default());
    for route in routes {
        let name = strings.get(route.name)?;
        find(chains, "chain", route.chain).map_err(|error| error.within(format!("route `{name}`")))?;
        let chain = usize::try_from(route.chain).unwrap_or(usize::MAX);
        let guarded = Guarded { name: Arc::clone(&name), chain, used: AtomicBool::new(!counted) };
        if loaded.insert(RouteName(Arc::clone(&name)), guarded).is_some() {
            return Err(LoadError::Repeated { what: "route", name });
        }
    }
    Ok(loaded)
}

/// All routes of Gateways, by their marked names.
#[derive(Debug)]
struct Declared {
    /// The routes without a chain of their own.
    open: FxHashSet<RouteName>,
    guarded: Vec<Arc<str>>,
}

impl Declared {
    fn load(wire: &wire::DeclaredRoutes, strings: &Strings) -> Result<Self, LoadError> {
        Ok(Self {
            open: wire.open.iter().map(|name| strings.get(*name).map(RouteName)).collect::<Result<_, _>>()?,
            guarded: wire.guarded.iter().map(|name| strings.get(*name)).collect::<Result<_, _>>()?,
        })
    }
}

impl Guarded {
    /// A copy, to be found under another name.
    fn again(&self) -> Self {
        let used = AtomicBool::new(self.used.load(Relaxed));
        Self { name: Arc::clone(&self.name), chain: self.chain, used }
    }
}

/// The name of a route without its mark.
fn plain(marked: &str) -> &str {
    marked.split_once('#').map_or(marked, |(name, _)| name)
}

fn load_matched_headers(matched: &wire::MatchedHeaders, strings: &Strings) -> Result<Vec<Arc<str>>, LoadError> {
    matched.names.iter().map(|name| strings.get(*name)).collect()
}

/// Whether one of the matched headers may be edited or, if these are not listed, any header.
fn edits_matched_header(edited: &EditedHeaders, matched: Option<&[Arc<str>]>) -> bool {
    match matched {
        Some(matched) => matched.iter().any(|name| edited.may_edit(name)),
        None => !edited.is_empty(),
    }
}

fn load_default_chain(chain: u32, chains: &[Chain]) -> Result<Option<usize>, LoadError> {
    let Some(index) = chain.checked_sub(1) else { return Ok(None) };
    find(chains, "chain", index).map_err(|error| error.within("default chain"))?;
    Ok(usize::try_from(index).ok())
}
