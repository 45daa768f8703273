//! Projects a plan to the extension configurations (ECDS) that deliver it to Envoy together with the filter's code.

use std::{path::PathBuf, sync::Arc};

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
use crate::{
    gate::{AdmittedPlan, EncodedPlan, Gate, Refusal},
    wasm::HostError,
};

/// What stands for the digest of the filter in the path of its file on nodes.
const DIGEST: &str = "{digest}";

/// One build of the filter, and the gate that loads plans in it.
#[derive(Debug, Clone)]
struct Build {
    bytes: Arc<[u8]>,
    digest: Digest,
    gate: Gate,
}

impl Build {
    fn of(bytes: Vec<u8>, gate: impl FnOnce(&[u8], &Digest) -> Result<Gate, HostError>) -> Result<Self, HostError> {
        let digest = Digest::of(&bytes);
        Ok(Self { gate: gate(&bytes, &digest)?, bytes: bytes.into(), digest })
    }
}

/// The filter builds that plans are for, how Envoys load the first of them, and the gates. Nodes that have the filter in
/// a file may run another one of the builds. Cheap to clone.
#[derive(Debug, Clone)]
pub struct FilterCode {
    build: Build,
    /// The other builds, sorted by digest.
    others: Vec<Build>,
    /// The digest of all builds together; of a single one, its own.
    set: Digest,
    on_nodes: Option<PathBuf>,
}

/// A build that refuses a plan, and why.
#[derive(Debug)]
pub struct NotAdmitted {
    /// Why.
    pub refusal: Refusal,
    /// The digest of the build, if it is not the first one.
    pub other: Option<Digest>,
}

impl FilterCode {
    /// Code that is sent inside of the resource, or that every node has in the file `on_nodes`. In its path, `{digest}`
    /// stands for the digest of the code. The gate is the engine, until [`gated`](Self::gated) sets another.
    pub fn new(bytes: Vec<u8>, on_nodes: Option<PathBuf>) -> Self {
        let digest = Digest::of(&bytes);
        let build = Build { bytes: bytes.into(), digest: digest.clone(), gate: Gate::of_engine() };
        Self { build, others: Vec::new(), set: digest, on_nodes }
    }

    /// The same code with another gate. To serve Envoys, the gate must load plans in this code.
    pub fn gated(self, gate: Gate) -> Self {
        Self { build: Build { gate, ..self.build }, ..self }
    }

    /// The same code, for nodes of which some have another build in their file. Every plan must load in all of them.
    pub fn beside(mut self, bytes: Vec<u8>) -> Result<Self, HostError> {
        let other = Build::of(bytes, |code, digest| self.build.gate.of_build(code, digest))?;
        if other.digest != self.build.digest && self.others.iter().all(|known| known.digest != other.digest) {
            self.others.push(other);
            self.others.sort_by(|one, other| one.digest.cmp(&other.digest));
            let digests = self.digests();
            self.set = Digest::of_parts(digests.iter().map(|digest| digest.as_str().as_bytes()));
        }
        Ok(self)
    }

    /// Other builds that lie on nodes in the same way, with gates of the same kind. The first is the one that is served.
    /// `None` if there are none.
    pub fn of_builds(&self, builds: impl IntoIterator<Item = Vec<u8>>) -> Result<Option<Self>, HostError> {
        let mut builds = builds.into_iter();
        let Some(first) = builds.next() else { return Ok(None) };
        let build = Build::of(first, |code, digest| self.build.gate.of_build(code, digest))?;
        let set = build.digest.clone();
        let first = Self { build, others: Vec::new(), set, on_nodes: self.on_nodes.clone() };
        builds.try_fold(first, Self::beside).map(Some)
    }

    /// The gate of the first build.
    pub fn gate(&self) -> &Gate {
        &self.build.gate
    }

    /// Loads a plan in every build.
    pub fn admit(&self, plan: &EncodedPlan) -> Result<AdmittedPlan, NotAdmitted> {
        let refused = |other: Option<&Build>| {
            let other = other.map(|build| build.digest.clone());
            move |refusal| NotAdmitted { refusal, other }
        };
        let admitted = self.build.gate.admit(plan.clone()).map_err(refused(None))?;
        for other in &self.others {
            other.gate.admit(plan.clone()).map_err(refused(Some(other)))?;
        }
        Ok(admitted)
    }

    /// The digest of the code.
    pub fn digest(&self) -> &Digest {
        &self.build.digest
    }

    /// The digest of all builds together. It is that of the code if there is only one.
    pub fn set(&self) -> &Digest {
        &self.set
    }

    /// The digests of all builds; the first is the one that is served.
    pub fn digests(&self) -> Vec<Digest> {
        self.builds().map(|(digest, _)| digest.clone()).collect()
    }

    /// All builds with their digests; the first is the one that is served.
    pub fn builds(&self) -> impl Iterator<Item = (&Digest, &[u8])> {
        std::iter::once(&self.build).chain(&self.others).map(|build| (&build.digest, &*build.bytes))
    }

    /// The bytes of the code.
    pub fn bytes(&self) -> &[u8] {
        &self.build.bytes
    }

    fn source(&self) -> AsyncDataSource {
        let specifier = match &self.on_nodes {
            Some(path) => {
                data_source::Specifier::Filename(path.display().to_string().replace(DIGEST, self.digest().as_str()))
            }
            None => data_source::Specifier::InlineBytes(self.bytes().to_vec()),
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
