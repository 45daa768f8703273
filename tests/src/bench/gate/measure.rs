//! Measures one case: a control plane in this process, a real Envoy, and changes, one after the other.

use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use postern::{
    control_plane::ControlPlane,
    serve::{Sockets, serve},
};
use postern_base::digest::Digest;
use postern_compile::{
    gate::{Gate, ModuleCache, Origin},
    keys::KeySets,
    pipeline::compile_bundle,
    snapshot::{FilterCode, ResourceType, Selection, Snapshot},
    wasm::Limits,
};
use tokio::runtime::Runtime;

use super::resources;
use crate::{Envoy, control_plane::from_environment, site::free_port};

/// What the listeners of Gateways subscribe to.
pub(super) const FILTER: &str = "postern-gateway";
/// Far longer than an Envoy takes: reaching it is a failure, not a measurement.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// The interval at which the fleet is polled.
pub(super) const LOOK: Duration = Duration::from_micros(200);

/// The times of one change, by part.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// From files to resources.
    pub(super) read: Duration,
    /// From resources to what Envoys get, gate included.
    pub(super) compile: Duration,
    /// The gate alone, on the same plan.
    pub(super) gate: Duration,
    /// From publication to the ACK.
    pub(super) ack: Duration,
    /// From the files to the ACK.
    pub(super) total: Duration,
}

/// The filter behind its gate, as after any start but the first.
pub(super) fn code() -> Result<FilterCode> {
    let directory = tempfile::tempdir()?;
    let code = FilterCode::new(fs::read(from_environment("POSTERN_FILTER")?)?, None);
    // The first start compiles, every later one does not: that is the one to measure.
    let cache = ModuleCache::open(directory.path(), &directory.path().join("module.key"))?;
    cache.filter(code.bytes(), code.digest())?;
    let (filter, origin) = cache.filter(code.bytes(), code.digest())?;
    ensure!(origin == Origin::Cached, "the compiled filter was not kept");
    Ok(code.gated(Gate::of_filter(filter, Limits::default())))
}

pub(super) fn measure(code: &FilterCode, routes: usize, rounds: u32) -> Result<Vec<Times>> {
    let runtime = Runtime::new()?;
    let plane = Arc::new(ControlPlane::new(code.clone()));
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let sockets = runtime.block_on(Sockets::bind(any, any))?;
    let xds = sockets.xds_address()?;
    runtime.spawn(serve(Arc::clone(&plane), sockets));
    let listener = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let case = Case { plane, code: code.clone(), routes, listener };
    case.plane.commands().publish(case.compile(0)?).wait()?;
    let envoy = Envoy::whole(xds)?;
    // The first change waits for an Envoy that starts; it does not count.
    case.change(1).with_context(|| envoy.log().join("\n"))?;
    (2..rounds + 2).map(|change| case.change(change)).collect()
}

struct Case {
    plane: Arc<ControlPlane>,
    code: FilterCode,
    routes: usize,
    listener: SocketAddr,
}

impl Case {
    fn compile(&self, change: u32) -> Result<Snapshot> {
        let bundle = postern_model::read(&resources::files(self.routes, self.listener, change)?)?;
        Ok(compile_bundle(&bundle, &KeySets::default(), &self.code)?)
    }

    fn change(&self, change: u32) -> Result<Times> {
        let files = resources::files(self.routes, self.listener, change)?;
        let begin = Instant::now();
        let bundle = postern_model::read(&files)?;
        let read = begin.elapsed();
        let snapshot = compile_bundle(&bundle, &KeySets::default(), &self.code)?;
        let compile = begin.elapsed() - read;
        let plan = snapshot.plan().clone();
        let wanted = Selection::Named(BTreeSet::from([FILTER.to_owned()]));
        let version = snapshot.select(ResourceType::ExtensionConfig, &wanted).version;
        let published = Instant::now();
        self.plane.commands().publish(snapshot).wait()?;
        self.wait_for_ack(&version)?;
        let (ack, total) = (published.elapsed(), begin.elapsed());
        let again = Instant::now();
        ensure!(postern_compile::gate::diagnose(&plan).is_none(), "the gate refuses what it let through");
        Ok(Times { read, compile, gate: again.elapsed(), ack, total })
    }

    fn wait_for_ack(&self, version: &Digest) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < LIMIT {
            for node in self.plane.fleet().report() {
                let Some(status) = node.types.get(&ResourceType::ExtensionConfig) else { continue };
                if let Some(refused) = &status.refused {
                    return Err(anyhow!("Envoy refused the plan: {}", refused.message));
                }
                if status.running.as_ref() == Some(version) {
                    return Ok(());
                }
            }
            thread::sleep(LOOK);
        }
        Err(anyhow!("no ACK within {LIMIT:?}"))
    }
}
