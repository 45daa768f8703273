//! The gate: no plan reaches an Envoy that has not been loaded here first.
//!
//! Today the engine loads it natively, by the same code that runs in the filter. Loading it in the very filter bytes
//! under wasmtime takes this place later, behind the same face.

use postern_engine::{LoadError, Plan};
use postern_proto::plan::v1::{Chain, FORMAT, Plan as WirePlan, Steps};
use prost::Message;

use crate::digest::Digest;

/// An encoded plan that the gate has let through. Only the gate makes one.
#[derive(Debug, Clone)]
pub struct AdmittedPlan {
    bytes: Vec<u8>,
}

impl AdmittedPlan {
    /// The plan as a filter gets it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A plan that went past the gate, so that a test can see what an Envoy makes of it.
    #[cfg(feature = "test-hooks")]
    pub fn forced_past_the_gate(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }
}

/// Loads a plan as a filter would.
pub fn admit(plan: &WirePlan) -> Result<AdmittedPlan, LoadError> {
    let bytes = plan.encode_to_vec();
    Plan::load(&bytes)?;
    Ok(AdmittedPlan { bytes })
}

/// A plan that refuses every request: it has nothing that could be wrong.
pub fn refusal(revision: &Digest) -> AdmittedPlan {
    let request = Steps { steps: Vec::new(), unsupported: vec![0] };
    let plan = WirePlan {
        format: FORMAT,
        revision: revision.short().to_owned(),
        strings: vec!["a plan that is not valid".to_owned()],
        chains: vec![Chain { request: Some(request), ..Chain::default() }],
        default_chain: 1,
        ..WirePlan::default()
    };
    AdmittedPlan { bytes: plan.encode_to_vec() }
}

/// Why a filter would refuse a plan: what a NACK leaves out.
pub fn diagnose(plan: &AdmittedPlan) -> Option<LoadError> {
    Plan::load(&plan.bytes).err()
}
