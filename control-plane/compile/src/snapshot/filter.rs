//! The plan → the extension configuration (ECDS) that brings it, with the filter's code, into Envoy.

use std::path::PathBuf;

use envoy_types::pb::{
    envoy::{
        config::core::v3::{
            AggregatedConfigSource, ApiVersion, AsyncDataSource, ConfigSource, DataSource, TypedExtensionConfig,
            async_data_source, config_source::ConfigSourceSpecifier, data_source,
        },
        extensions::{
            filters::http::wasm::v3::Wasm,
            wasm::v3::{FailurePolicy, PluginConfig, VmConfig, plugin_config},
        },
    },
    google::protobuf::{Any, BoolValue},
};
use postern_base::digest::Digest;

use postern_engine::Placement;
use postern_proto::configuration;

use super::{FILTER_NAME, Resource, any};
use crate::gate::{AdmittedPlan, EncodedPlan, Gate};

/// The filter's code, how Envoys get at it, and the gate that its plans pass.
#[derive(Debug, Clone)]
pub struct FilterCode {
    bytes: Vec<u8>,
    digest: Digest,
    on_nodes: Option<PathBuf>,
    gate: Gate,
}

impl FilterCode {
    /// Code that travels inside the resource, or lies at `on_nodes` on every node. Its plans are loaded by the engine
    /// alone, until it is [gated](Self::gated).
    pub fn new(bytes: Vec<u8>, on_nodes: Option<PathBuf>) -> Self {
        let digest = Digest::of(&bytes);
        Self { bytes, digest, on_nodes, gate: Gate::of_engine() }
    }

    /// The same code behind another gate: whatever serves Envoys must load plans in this very code.
    pub fn gated(self, gate: Gate) -> Self {
        Self { gate, ..self }
    }

    /// What every plan for this code must pass.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The digest of the code.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The code itself.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn source(&self) -> AsyncDataSource {
        let specifier = match &self.on_nodes {
            Some(path) => data_source::Specifier::Filename(path.display().to_string()),
            None => data_source::Specifier::InlineBytes(self.bytes.clone()),
        };
        let local = DataSource { specifier: Some(specifier), ..Default::default() };
        AsyncDataSource { specifier: Some(async_data_source::Specifier::Local(local)) }
    }
}

/// The filter with a plan, for every place in Envoy's filter chains.
#[derive(Debug)]
pub(crate) struct Filters {
    label: String,
    resources: [Resource; Placement::ALL.len()],
}

impl Filters {
    pub(crate) fn new(plan: &EncodedPlan, code: &FilterCode) -> Self {
        let resources = Placement::ALL.map(|placement| extension_config(placement, plan, code));
        Self { label: plan.label().to_owned(), resources }
    }

    /// What carries this very plan, which the gate has let through.
    pub(super) fn with(self, plan: &AdmittedPlan, code: &FilterCode) -> [Resource; Placement::ALL.len()] {
        if self.label == plan.label() { self.resources } else { Self::new(plan.encoded(), code).resources }
    }
}

/// The filter with a plan, for one place in Envoy's filter chains. The same code under the same `vm_id` is not compiled
/// again for a new plan, and is one VM a worker for all placements.
fn extension_config(placement: Placement, plan: &EncodedPlan, code: &FilterCode) -> Resource {
    let vm = VmConfig {
        vm_id: FILTER_NAME.to_owned(),
        runtime: "envoy.wasm.runtime.v8".to_owned(),
        code: Some(code.source()),
        ..Default::default()
    };
    let plugin = PluginConfig {
        name: placement.name().to_owned(),
        root_id: placement.name().to_owned(),
        configuration: Some(Any { type_url: configuration::TYPE_URL.to_owned(), value: plan.configuration().to_vec() }),
        // Even a trap heals: the VM starts anew with the next request.
        failure_policy: FailurePolicy::FailReload.into(),
        // A request that waits for its body must be able to pause before its headers go on.
        allow_on_headers_stop_iteration: Some(BoolValue { value: true }),
        vm: Some(plugin_config::Vm::VmConfig(vm)),
        ..Default::default()
    };
    let typed_config = Some(any(&Wasm { config: Some(plugin) }));
    Resource::new(placement.name(), &TypedExtensionConfig { name: placement.name().to_owned(), typed_config })
}

/// Where generated resources get further ones from: the stream that they came on themselves.
pub(super) fn from_the_control_plane() -> ConfigSource {
    ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..Default::default()
    }
}
