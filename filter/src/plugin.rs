//! The state of one VM: its root contexts, each with its plan, and the streams in progress.

use std::{cell::RefCell, fmt, sync::Arc};

use postern_engine::{LoadError, Placement, Plan, Site};
use postern_proto::configuration;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::{
    host::{self, HostError, Map},
    shared, sightings,
    stream::{Action, Duty, Stream},
};

thread_local! {
    static PLUGIN: RefCell<Plugin> = const { RefCell::new(Plugin::new()) };
}

/// The state. A VM has one thread, and no host call of ours calls back into this state, so a borrow never fails.
#[derive(Debug)]
struct Plugin {
    /// The root contexts. There are few: one for each configuration of the filter that is in force or draining.
    roots: Vec<Root>,
    /// The stream that began last. Envoy calls for its headers right after that, so it is found without a lookup.
    newest: Option<(u32, Stream)>,
    /// The other streams for which there is still something to do.
    streams: FxHashMap<u32, Stream>,
    /// The streams that wait for a time, with their root contexts.
    delayed: Vec<Delayed>,
}

#[derive(Debug)]
struct Root {
    id: u32,
    placement: Placement,
    /// The plan; `None` until the context is configured.
    plan: Option<Arc<Plan>>,
}

impl Plugin {
    const fn new() -> Self {
        let streams = FxHashMap::with_hasher(FxBuildHasher);
        Self { roots: Vec::new(), newest: None, streams, delayed: Vec::new() }
    }

    #[inline]
    fn root(&mut self, id: u32) -> Option<&mut Root> {
        self.roots.iter_mut().find(|root| root.id == id)
    }

    /// The plan of a root context's streams, and their duty.
    #[inline]
    fn terms(&self, root: u32) -> (Option<Arc<Plan>>, Duty) {
        let Some(root) = self.roots.iter().find(|known| known.id == root) else { return (None, Duty::Gateway) };
        let duty = match root.placement {
            Placement::Gateway => Duty::Gateway,
            Placement::Verify => Duty::Verify,
            Placement::Overlay => Duty::Overlay { verified: self.verifies() },
        };
        (root.plan.clone(), duty)
    }

    /// Whether this Envoy has a filter that compares routes directly before a router.
    fn verifies(&self) -> bool {
        self.roots.iter().any(|root| root.placement == Placement::Verify && root.plan.is_some())
    }

    #[inline]
    fn take(&mut self, stream: u32) -> Option<Stream> {
        match self.newest.take_if(|(newest, _)| *newest == stream) {
            Some((_, stream)) => Some(stream),
            None if self.streams.is_empty() => None,
            None => self.streams.remove(&stream),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Delayed {
    root: u32,
    stream: u32,
    until: u64,
}

/// The interval in milliseconds at which waiting streams are checked, as long as there are any.
const TICK: u32 = 10;

/// A context begins: a root context without a parent, or a stream, which keeps the plan of its root context to its end.
pub(crate) fn create(context: u32, parent: u32) {
    PLUGIN.with_borrow_mut(|plugin| {
        if parent == 0 {
            host::install_logger();
            plugin.roots.push(Root { id: context, placement: Placement::Overlay, plan: None });
        } else {
            let (plan, duty) = plugin.terms(parent);
            let newest = plugin.newest.replace((context, Stream::new(plan, parent, duty)));
            if let Some((id, stream)) = newest {
                plugin.streams.insert(id, stream);
            }
        }
    });
}

/// Loads the plan of a root context, whole or not at all. Returns whether it was loaded.
pub(crate) fn configure(root: u32, size: usize) -> bool {
    match load(size) {
        Ok((plan, placement)) => {
            log::debug!("plan loaded: label={} routes={}", plan.label(), plan.routes());
            if placement == Placement::Overlay {
                sightings::expect(&plan);
            }
            let plan = Some(Arc::new(plan));
            PLUGIN.with_borrow_mut(|plugin| match plugin.root(root) {
                Some(known) => (known.plan, known.placement) = (plan, placement),
                None => plugin.roots.push(Root { id: root, placement, plan }),
            });
            true
        }
        Err(reason) => {
            reason.log();
            false
        }
    }
}

fn load(size: usize) -> Result<(Plan, Placement), Refusal> {
    let configuration = host::plugin_configuration(size)?;
    let plan = Plan::load(configuration::unwrap(&configuration).ok_or(Refusal::Configuration)?)?;
    // It is as large as the plan, and all that is kept of it is in the plan.
    drop(configuration);
    if let Some(agent) = plan.agent_names().next() {
        return Err(Refusal::Agent(agent.to_owned()));
    }
    shared::forget_old();
    plan.shared_keys().try_for_each(shared::prepare)?;
    let root_id = host::property("plugin_root_id")?.unwrap_or_default();
    let placement = Placement::of(&root_id);
    Ok((plan.placed(placement), placement))
}

/// Why a plan is refused.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("the configuration is not a GenericSecret with a plan")]
    Configuration,
    #[error("agent `{0}`: this filter does not call agents yet")]
    Agent(String),
}

impl Refusal {
    /// One line in Envoy's log: what is wrong and, for programs, where.
    fn log(&self) {
        let (site, words): (_, &dyn fmt::Display) = match self {
            Self::Load(error) => {
                let (site, error) = error.locate();
                (site, error)
            }
            other => (Site::Elsewhere, other),
        };
        log::error!("plan refused: {words}{site}");
    }
}

/// Handles the headers of a request.
pub(crate) fn on_request_headers(id: u32, end_of_stream: bool) -> Action {
    // A stream that Envoy never announced has no plan, and so is refused like any other without one.
    let stream = take(id).unwrap_or_else(|| Stream::new(None, 0, Duty::Gateway));
    act(id, stream, |stream| stream.on_request_headers(end_of_stream))
}

/// Handles a part of a request's body. `size` is all of the body so far.
pub(crate) fn on_request_body(stream: u32, size: usize, end_of_stream: bool) -> Action {
    with_stream(stream, |stream| stream.on_request_body(size, end_of_stream))
}

/// Handles the trailers of a request. All of its body is there.
pub(crate) fn on_request_trailers(id: u32) -> Action {
    match strip_trailers() {
        Ok(()) => with_stream(id, |stream| stream.on_request_body(0, true)),
        Err(error) => {
            act(id, take(id).unwrap_or_else(|| Stream::new(None, 0, Duty::Gateway)), |stream| stream.fail_by(error))
        }
    }
}

/// Removes trailers that have the name of a header that a step edits: some upstreams take trailers for headers. Few
/// requests have trailers, and most streams are forgotten by then, so the chain is looked up again, in every plan that
/// the stream may have begun under.
fn strip_trailers() -> Result<(), HostError> {
    let route = host::property("xds\0route_name")?.unwrap_or_default();
    let headers = host::headers(Map::RequestHeaders)?;
    let edited = PLUGIN.with_borrow(|plugin| {
        let plans = plugin.roots.iter().filter_map(|root| root.plan.as_ref());
        let edited = plans.filter_map(|plan| Some(plan.edited_request_headers(plan.chain_for(&route, &headers)?)));
        edited.filter(|edited| !edited.is_empty()).collect::<Vec<_>>()
    });
    if edited.is_empty() {
        return Ok(());
    }
    let trailers = host::headers(Map::RequestTrailers)?;
    let names = trailers.iter().filter_map(|(name, _)| str::from_utf8(name).ok());
    let mut edited = names.filter(|name| edited.iter().any(|edited| edited.may_edit(name)));
    edited.try_for_each(|name| host::remove_header(Map::RequestTrailers, name))
}

/// Handles the headers of a response.
pub(crate) fn on_response_headers(stream: u32) -> Action {
    with_stream(stream, Stream::on_response_headers)
}

/// Wakes the streams of a root context whose time has come. If the clock fails, it wakes all of them, so that none
/// waits for ever.
pub(crate) fn on_tick(root: u32) {
    let now = host::now().unwrap_or(u64::MAX);
    let due: Vec<Delayed> = PLUGIN.with_borrow_mut(|plugin| {
        plugin.delayed.extract_if(.., |delayed| delayed.root == root && delayed.until <= now).collect()
    });
    for Delayed { stream, .. } in due {
        if let Err(error) = wake(stream) {
            log::error!("a delayed request is stuck: {error}");
        }
    }
    let waiting = PLUGIN.with_borrow(|plugin| plugin.delayed.iter().any(|delayed| delayed.root == root));
    if !waiting && let Err(error) = host::act_for(root).and_then(|()| host::set_tick_period(0)) {
        log::error!("the timer cannot be stopped: {error}");
    }
}

fn wake(id: u32) -> Result<(), HostError> {
    let Some(stream) = take(id) else { return Ok(()) };
    host::act_for(id)?;
    match act(id, stream, Stream::on_time) {
        Action::Continue => host::continue_request(),
        Action::Pause | Action::Hold => Ok(()),
    }
}

/// Removes a context that has ended.
pub(crate) fn delete(context: u32) {
    let stream = PLUGIN.with_borrow_mut(|plugin| {
        if !plugin.delayed.is_empty() {
            plugin.delayed.retain(|delayed| delayed.stream != context);
        }
        let stream = plugin.take(context);
        if stream.is_none()
            && let Some(place) = plugin.roots.iter().position(|root| root.id == context)
        {
            plugin.roots.swap_remove(place);
        }
        stream
    });
    if let Some(mut stream) = stream {
        stream.on_end();
    }
}

/// Lets an event happen to a stream by its id. A stream that was forgotten, since there was nothing left to do, passes.
#[inline]
fn with_stream(id: u32, what: impl FnOnce(&mut Stream) -> Action) -> Action {
    take(id).map_or(Action::Continue, |stream| act(id, stream, what))
}

/// Takes a stream out of the state for the time of an event, so that nothing is borrowed during host calls.
#[inline]
fn take(id: u32) -> Option<Stream> {
    PLUGIN.with_borrow_mut(|plugin| plugin.take(id))
}

#[inline(never)]
fn keep(id: u32, stream: Stream, delayed: Option<Delayed>) {
    PLUGIN.with_borrow_mut(|plugin| {
        plugin.delayed.extend(delayed);
        plugin.streams.insert(id, stream);
    });
}

/// Lets an event happen to a stream, and forgets the stream when there is nothing left to do for it.
#[inline]
fn act(id: u32, mut stream: Stream, act: impl FnOnce(&mut Stream) -> Action) -> Action {
    let waited = stream.delayed_until();
    let action = act(&mut stream);
    let delayed = stream.delayed_until().filter(|until| waited != Some(*until));
    let delayed = delayed.map(|until| Delayed { root: stream.root(), stream: id, until });
    if let Some(stream) = stream.unless_over() {
        keep(id, stream, delayed);
    }
    // Without a timer it would wait for ever: Envoy's time-outs end it, and it never reaches upstream.
    if delayed.is_some()
        && let Err(error) = host::set_tick_period(TICK)
    {
        log::error!("a delayed request is stuck: {error}");
    }
    action
}
