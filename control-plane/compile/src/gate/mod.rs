//! The gate: no plan reaches an Envoy that has not been loaded here first, in the very filter bytes that Envoys run.
//!
//! A plan takes the path that it takes in Envoy: a VM starts, a root context is made, its configuration is offered. The
//! VM is a fresh one each time, as Envoy makes one to try an update on, and it has no more fuel, memory and table
//! entries than [`Limits`] says; fuel is time that is the same on every machine. What the filter logs when it refuses
//! is the user's error: the line says where in the plan it is ([`Site`](postern_engine::Site)), and [`blame`] finds the
//! resource there.
//!
//! The engine can be a gate of its own, where no filter's code is at hand: `postern validate` on a machine that has
//! none, and tests of what comes before and after the gate. It runs the same code natively, but cannot know what the
//! filter adds to it, nor another version of the filter.

mod blame;
mod modules;
mod refusal;

use std::{fmt, ops::Deref, sync::Arc, time::Instant};

use postern_base::{counter::Histogram, digest::Digest};
use postern_engine::Plan;
use postern_proto::{
    configuration,
    plan::v1::{Chain, FORMAT, Plan as WirePlan, Steps},
};
use prost::Message;

pub(crate) use self::blame::blame;
pub use self::{
    modules::{CacheError, ModuleCache, Origin},
    refusal::Refusal,
};
use crate::wasm::{Filter, Limits, Setup};

/// An encoded plan, under the label that its content gives it.
#[derive(Debug, Clone)]
pub struct EncodedPlan {
    label: Arc<str>,
    configuration: Arc<[u8]>,
}

impl EncodedPlan {
    /// A plan, whose label is the digest of all else in it.
    pub fn new(plan: &WirePlan) -> Self {
        let mut encoded = plan.encode_to_vec();
        let label = Digest::of(&encoded).short().to_owned();
        // The encodings of two messages, one after the other, are that of both merged.
        encoded.extend(WirePlan { label: label.clone(), ..WirePlan::default() }.encode_to_vec());
        Self { label: label.into(), configuration: configuration::wrap(&encoded).into() }
    }

    /// What filter state, logs and records call the plan. Equal plans have equal labels.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The plan.
    pub fn bytes(&self) -> &[u8] {
        // It was put in, and so is there.
        configuration::unwrap(&self.configuration).unwrap_or_default()
    }

    /// The configuration that brings it to a filter, byte for byte as Envoy hands it over.
    pub fn configuration(&self) -> &[u8] {
        &self.configuration
    }
}

/// An encoded plan that a gate has let through. Only a gate makes one.
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
    /// The plan alone.
    pub fn encoded(&self) -> &EncodedPlan {
        &self.plan
    }

    /// A plan that went past the gate, so that a test can see what an Envoy makes of it.
    #[cfg(feature = "test-hooks")]
    pub fn forced_past_the_gate(plan: &[u8]) -> Self {
        let label = Digest::of(plan).short().into();
        let plan = EncodedPlan { label, configuration: configuration::wrap(plan).into() };
        Self { plan, gate: Gate::of_engine() }
    }
}

/// A plan that refuses every request: it has nothing that could be wrong.
pub fn refusal() -> AdmittedPlan {
    let request = Steps { steps: Vec::new(), unsupported: vec![0] };
    let plan = WirePlan {
        format: FORMAT,
        strings: vec!["invalid-plan".to_owned()],
        chains: vec![Chain { request: Some(request), ..Chain::default() }],
        default_chain: 1,
        ..WirePlan::default()
    };
    AdmittedPlan { plan: EncodedPlan::new(&plan), gate: Gate::of_engine() }
}

/// Loads plans as Envoys will. Cheap to clone.
#[derive(Clone)]
pub struct Gate(Arc<Loader>);

enum Loader {
    Engine,
    Filter { filter: Filter, limits: Limits, times: Histogram },
}

impl Gate {
    /// Loads plans in a filter.
    pub fn of_filter(filter: Filter, limits: Limits) -> Self {
        Self(Arc::new(Loader::Filter { filter, limits, times: Histogram::default() }))
    }

    /// Loads plans by the engine alone: for what never reaches an Envoy.
    pub fn of_engine() -> Self {
        Self(Arc::new(Loader::Engine))
    }

    /// The filter that plans are loaded in; `None` if the engine does it alone.
    pub fn filter(&self) -> Option<&Filter> {
        match &*self.0 {
            Loader::Engine => None,
            Loader::Filter { filter, .. } => Some(filter),
        }
    }

    /// How long plans took to load; `None` if the engine loads them.
    pub fn times(&self) -> Option<&Histogram> {
        match &*self.0 {
            Loader::Engine => None,
            Loader::Filter { times, .. } => Some(times),
        }
    }

    /// Loads a plan as a filter would. Returns why the filter would not take it.
    pub fn admit(&self, plan: EncodedPlan) -> Result<AdmittedPlan, Refusal> {
        self.load(&plan)?;
        Ok(AdmittedPlan { plan, gate: self.clone() })
    }

    fn load(&self, plan: &EncodedPlan) -> Result<(), Refusal> {
        match &*self.0 {
            Loader::Engine => Plan::load(plan.bytes()).map(drop).map_err(|error| Refusal::from(&error)),
            Loader::Filter { filter, limits, times } => {
                let begin = Instant::now();
                let mut vm = filter.start(Setup { limits: *limits, ..Setup::default() })?;
                let loaded = vm.configure(plan.configuration()).map(drop).map_err(Refusal::from);
                times.observe(begin.elapsed());
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

/// Why a filter would refuse a plan: what a NACK leaves out. `None` if the gate that it went through still takes it.
pub fn diagnose(plan: &AdmittedPlan) -> Option<Refusal> {
    plan.gate.load(plan).err()
}
