//! Measures one case: compiles everything, then one changed policy, again and again.

use std::{
    collections::BTreeSet,
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use postern_base::node::NodeIdentity;
use postern_compile::{
    gate::Gate,
    keys::KeySets,
    snapshot::{FilterCode, Snapshot},
    wasm::{Filter, Limits},
};
use postern_release::publication::Publication;

use super::{GATEWAYS, resources};
use crate::control_plane::from_environment;

/// The times of one round, by part.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// From files to resources.
    pub(super) read: Duration,
    /// From resources to the snapshots of all nodes, with nothing to reuse.
    pub(super) full: Duration,
    /// Like `full`, after one policy has changed.
    pub(super) one_change: Duration,
    /// How many groups were compiled for that change.
    pub(super) recompiled: usize,
}

pub(super) fn measure(policies: usize, rounds: u32) -> Result<Vec<Times>> {
    let code = FilterCode::new(fs::read(from_environment("POSTERN_FILTER")?)?, Some("/filter.wasm".into()));
    let gate = Gate::of_filter(Filter::compile(code.bytes())?, Limits::default());
    let code = code.gated(gate);
    let nodes = resources::nodes();
    (0..rounds).map(|round| once(policies, round, &code, &nodes)).collect()
}

fn once(policies: usize, round: u32, code: &FilterCode, nodes: &[NodeIdentity]) -> Result<Times> {
    let files = resources::files(policies, round)?;
    let start = Instant::now();
    let bundle = postern_model::read(&files)?;
    let read = start.elapsed();

    let start = Instant::now();
    let whole = Publication::admit(bundle, KeySets::default(), code, nodes, None)?;
    let before = snapshots(&whole, nodes);
    let full = start.elapsed();

    let changed = postern_model::read(&resources::files(policies, round + 1)?)?;
    let start = Instant::now();
    let next = Publication::admit(changed, KeySets::default(), code, nodes, Some(&whole))?;
    let after = snapshots(&next, nodes);
    let one_change = start.elapsed();

    let groups: BTreeSet<_> = before.iter().map(Arc::as_ptr).collect();
    ensure!(groups.len() == GATEWAYS, "{} groups instead of {GATEWAYS}", groups.len());
    let recompiled: BTreeSet<_> = after.iter().map(Arc::as_ptr).filter(|group| !groups.contains(group)).collect();
    Ok(Times { read, full, one_change, recompiled: recompiled.len() })
}

fn snapshots(publication: &Publication, nodes: &[NodeIdentity]) -> Vec<Arc<Snapshot>> {
    nodes.iter().map(|node| publication.snapshot_for(node)).collect()
}
