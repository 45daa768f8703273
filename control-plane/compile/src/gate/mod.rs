//! The gate: loads every plan in the filter bytes that Envoys run, before an Envoy gets it.
//!
//! A plan is loaded as in Envoy: a VM starts, a root context is created, and the configuration is offered. Each plan
//! gets a new VM, as Envoy starts one to try an update, with the fuel, memory and table entries of [`Limits`]; fuel is
//! time that is equal on every machine. What the filter logs when it refuses a plan is an error of the user. The line
//! contains the site in the plan ([`Site`](postern_engine::Site)), and [`blame`] maps it to a resource.
//!
//! Without the filter's code, the engine itself can be the gate: for `postern validate` without a filter, and for
//! tests. It runs the same code natively, but does not cover what the filter adds, nor other versions of the filter.

mod blame;
mod modules;
mod refusal;

use std::{fmt, ops::Deref, sync::Arc, time::Instant};

use postern_base::{digest::Digest, durations};
use postern_engine::Plan;
use postern_proto::{
    configuration,
    plan::v1::{Chain, OLDEST_FORMAT, Plan as WirePlan, Steps},
};
use prometheus_client::metrics::histogram::Histogram;
use prost::Message;

pub(crate) use self::blame::blame;
pub use self::{
    modules::{CacheError, ModuleCache, Origin},
    refusal::Refusal,
};
use crate::wasm::{Filter, HostError, Limits, Setup};

/// An encoded plan with its label.
#[derive(Debug, Clone)]
pub struct EncodedPlan {
    label: Arc<str>,
    configuration: Arc<[u8]>,
}

impl EncodedPlan {
    /// Encodes a plan, and labels it with the digest of its content. A label in `plan` must be empty.
    pub fn new(plan: &WirePlan) -> Self {
        let mut encoded = plan.encode_to_vec();
        let label = Digest::of(&encoded).short().to_owned();
        // Concatenated encodings of two messages are the encoding of both merged.
        encoded.extend(WirePlan { label: label.clone(), ..WirePlan::default() }.encode_to_vec());
        Self { label: label.into(), configuration: configuration::wrap(&encoded).into() }
    }

    /// The name of the plan in filter state, logs and records. Equal plans have equal labels.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The encoded plan.
    pub fn bytes(&self) -> &[u8] {
        // It was wrapped in `new`.
        configuration::unwrap(&self.configuration).unwrap_or_default()
    }

    /// The filter's configuration with the plan, exactly as Envoy passes it to the filter.
    pub fn configuration(&self) -> &[u8] {
        &self.configuration
    }
}

/// An encoded plan that the gate has admitted. Only a gate makes one, except [`refusal()`] and a test hook.
#[derive(Debug, Clone)]
pub struct AdmittedPlan {
    plan: EncodedPlan,
    gate: Gate,
}

impl Deref for AdmittedPlan {
    type Target = EncodedPlan;

    fn deref(&self) -> &EncodedPlan {
        &self.plan
    }
}

impl AdmittedPlan {
    /// The plan without the gate.
    pub fn encoded(&self) -> &EncodedPlan {
        &self.plan
    }

    /// A plan that was not admitted, for tests of how an Envoy reacts to it.
    #[cfg(feature = "test-hooks")]
    pub fn forced_past_the_gate(plan: &[u8]) -> Self {
        let label = Digest::of(plan).short().into();
        let plan = EncodedPlan { label, configuration: configuration::wrap(plan).into() };
        Self { plan, gate: Gate::of_engine() }
    }
}

/// A plan that refuses every request. It needs no gate, since nothing in it can be invalid.
pub fn refusal() -> AdmittedPlan {
    let request = Steps { steps: Vec::new(), unsupported: vec![0] };
    let plan = WirePlan {
        format: OLDEST_FORMAT,
        strings: vec!["invalid-plan".to_owned()],
        chains: vec![Chain { request: Some(request), ..Chain::default() }],
        default_chain: 1,
        ..WirePlan::default()
    };
    AdmittedPlan { plan: EncodedPlan::new(&plan), gate: Gate::of_engine() }
}

/// Loads plans as Envoys do. Clones share the filter.
#[derive(Clone)]
pub struct Gate(Arc<Loader>);

enum Loader {
    Engine,
    Filter { filter: Filter, limits: Limits, times: Histogram, modules: Option<Arc<ModuleCache>> },
}

impl Gate {
    /// A gate that loads plans in a filter.
    pub fn of_filter(filter: Filter, limits: Limits) -> Self {
        Self::of_cached(filter, limits, None)
    }

    /// Like [`Self::of_filter`], with the cache of compiled filters for gates that are [made like it](Self::of_build).
    pub fn of_cached(filter: Filter, limits: Limits, modules: Option<Arc<ModuleCache>>) -> Self {
        Self(Arc::new(Loader::Filter { filter, limits, times: durations::histogram(), modules }))
    }

    /// A gate like this one for another build of the filter.
    pub fn of_build(&self, code: &[u8], digest: &Digest) -> Result<Self, HostError> {
        let Loader::Filter { limits, modules, .. } = &*self.0 else { return Ok(Self::of_engine()) };
        let filter = match modules {
            Some(modules) => modules.filter(code, digest)?.0,
            None => Filter::compile(code)?,
        };
        Ok(Self::of_cached(filter, *limits, modules.clone()))
    }

    /// A gate that loads plans in the engine itself, for plans that never reach an Envoy.
    pub fn of_engine() -> Self {
        Self(Arc::new(Loader::Engine))
    }

    /// The filter that loads the plans. `None` if the engine does.
    pub fn filter(&self) -> Option<&Filter> {
        match &*self.0 {
            Loader::Engine => None,
            Loader::Filter { filter, .. } => Some(filter),
        }
    }

    /// The time that loading took. `None` if the engine loads the plans.
    pub fn times(&self) -> Option<&Histogram> {
        match &*self.0 {
            Loader::Engine => None,
            Loader::Filter { times, .. } => Some(times),
        }
    }

    /// Loads a plan. Returns it as admitted, or why the filter refuses it.
    pub fn admit(&self, plan: EncodedPlan) -> Result<AdmittedPlan, Refusal> {
        self.load(&plan)?;
        Ok(AdmittedPlan { plan, gate: self.clone() })
    }

    fn load(&self, plan: &EncodedPlan) -> Result<(), Refusal> {
        match &*self.0 {
            Loader::Engine => Plan::load(plan.bytes()).map(drop).map_err(|error| Refusal::from(&error)),
            Loader::Filter { filter, limits, times, .. } => {
                let begin = Instant::now();
                let mut vm = filter.start(Setup { limits: *limits, ..Setup::default() })?;
                let loaded = vm.configure(plan.configuration()).map(drop).map_err(Refusal::from);
                times.observe(begin.elapsed().as_secs_f64());
                loaded
            }
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.filter().is_some() { "Gate(filter)" } else { "Gate(engine)" })
    }
}

/// Loads an admitted plan again, to find out why a node refused it. `None` if the gate still admits it.
pub fn diagnose(plan: &AdmittedPlan) -> Option<Refusal> {
    plan.gate.load(plan).err()
}
