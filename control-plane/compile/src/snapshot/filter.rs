//! Projects a plan to the extension configurations (ECDS) that deliver it to Envoy together with the filter's code.

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

/// The filter's code, how Envoys load it, and the gate for its plans.
#[derive(Debug, Clone)]
pub struct FilterCode {
    bytes: Vec<u8>,
    digest: Digest,
    on_nodes: Option<PathBuf>,
    gate: Gate,
}

impl FilterCode {
    /// Code that is sent inside of the resource, or that every node has in the file `on_nodes`. Its gate is the engine,
    /// until [`gated`](Self::gated) sets another.
    pub fn new(bytes: Vec<u8>, on_nodes: Option<PathBuf>) -> Self {
        let digest = Digest::of(&bytes);
        Self { bytes, digest, on_nodes, gate: Gate::of_engine() }
    }

    /// The same code with another gate. To serve Envoys, the gate must load plans in this code.
    pub fn gated(self, gate: Gate) -> Self {
        Self { gate, ..self }
    }

    /// The gate that every plan for this code must pass.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The digest of the code.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The bytes of the code.
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

/// The extension configurations of one plan, one for each placement of the filter.
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

    /// The configurations for an admitted plan. They are made again if they were made for another plan.
    pub(super) fn with(self, plan: &AdmittedPlan, code: &FilterCode) -> [Resource; Placement::ALL.len()] {
        if self.label == plan.label() { self.resources } else { Self::new(plan.encoded(), code).resources }
    }
}

/// The extension configuration with a plan for one placement. The `vm_id` is constant, so that Envoy does not compile
/// the code again for a new plan, and runs one VM a worker for all placements.
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
        // After a trap, Envoy starts a new VM with the next request.
        failure_policy: FailurePolicy::FailReload.into(),
        // Headers must be able to pause while the filter waits for the body.
        allow_on_headers_stop_iteration: Some(BoolValue { value: true }),
        vm: Some(plugin_config::Vm::VmConfig(vm)),
        ..Default::default()
    };
    let typed_config = Some(any(&Wasm { config: Some(plugin) }));
    Resource::new(placement.name(), &TypedExtensionConfig { name: placement.name().to_owned(), typed_config })
}

/// The config source of resources that generated ones refer to: the same stream.
pub(super) fn from_the_control_plane() -> ConfigSource {
    ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..Default::default()
    }
}
