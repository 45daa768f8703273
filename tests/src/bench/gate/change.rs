//! Measures one changed route among many, as users change one: a proposal is read, checked, stored and published, and
//! an Envoy accepts it. In the same run, a stub pushes the same bytes to another Envoy. The difference is our share.

use std::{
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use postern::{
    control_plane::ControlPlane,
    serve::{Sockets, serve},
};
use postern_base::node::NodeIdentity;
use postern_compile::snapshot::{FilterCode, Snapshot};
use postern_model::File;
use postern_release::{
    releases::{Applied, KEPT, Proposal, Releases},
    rollout::Strategy,
    store::{Database, Parent},
};
use tokio::runtime::Runtime;

use super::{
    measure::{FILTER, LIMIT, LOOK},
    resources,
    stub::Stub,
};
use crate::{Envoy, site::free_port};

/// The times of one change, by part.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    /// From the proposal to its publication, with the gate and the store.
    pub(super) apply: Duration,
    /// From the proposal to the ACK.
    pub(super) total: Duration,
    /// From a push to the ACK, where nothing is decided.
    pub(super) stub: Duration,
}

pub(super) fn measure(code: &FilterCode, routes: usize, rounds: u32) -> Result<Vec<Change>> {
    let runtime = Runtime::new()?;
    // A store as users have it, which is on the disk before a change is published.
    let state = tempfile::tempdir()?;
    let store = Arc::new(Database::open(state.path())?);
    let plane = Arc::new(ControlPlane::with_releases(code.clone(), Releases::new(store, Strategy::AllAtOnce, KEPT)));
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let sockets = runtime.block_on(Sockets::bind(any, any))?;
    let xds = sockets.xds_address()?;
    runtime.spawn(serve(Arc::clone(&plane), sockets));
    let followed = Arc::clone(&plane);
    runtime.spawn(async move { followed.follow_rollouts().await });
    let case = Case { plane, routes, listener: SocketAddr::from(([127, 0, 0, 1], free_port()?)) };

    case.apply(case.files(0)?)?;
    let stub = Stub::start(&runtime, case.snapshot()?)?;
    let (own, other) = (Envoy::whole(xds)?, Envoy::whole(stub.address())?);
    let logs = || format!("{}\n{}", own.log().join("\n"), other.log().join("\n"));
    // The first changes wait for Envoys that start; they do not count.
    (1..=rounds + 2).map(|change| case.change(change, &stub)).skip(2).collect::<Result<_>>().with_context(logs)
}

struct Case {
    plane: Arc<ControlPlane>,
    routes: usize,
    listener: SocketAddr,
}

impl Case {
    fn files(&self, change: u32) -> Result<Vec<File>> {
        resources::one_changed(self.routes, self.listener, change)
    }

    fn apply(&self, files: Vec<File>) -> Result<()> {
        let (author, message) = ("bench".to_owned(), String::new());
        let proposal = Proposal {
            files,
            author,
            message,
            parent: Parent::Latest,
            again: false,
            allow_unguarded: false,
            ..Proposal::default()
        };
        let applied = self.plane.commands().apply(proposal).wait()?;
        ensure!(matches!(applied, Applied::Revision(_)), "a change changed nothing");
        Ok(())
    }

    fn snapshot(&self) -> Result<Arc<Snapshot>> {
        let publication = self.plane.publications().latest().context("nothing is in force")?;
        Ok(publication.snapshot_for(&NodeIdentity::default()))
    }

    fn change(&self, change: u32, stub: &Stub) -> Result<Change> {
        let files = self.files(change)?;
        let begin = Instant::now();
        self.apply(files)?;
        let apply = begin.elapsed();
        self.wait_for_ack()?;
        let total = begin.elapsed();
        let stub = stub.push(self.snapshot()?, FILTER)?;
        Ok(Change { apply, total, stub })
    }

    fn wait_for_ack(&self) -> Result<()> {
        let publication = self.plane.publications().latest().context("nothing is in force")?;
        let begin = Instant::now();
        while begin.elapsed() < LIMIT {
            let progress = self.plane.fleet().progress(publication.revision());
            ensure!(progress.refusing.is_empty(), "Envoy refused the plan");
            if progress.settled > 0 && progress.is_complete() {
                return Ok(());
            }
            thread::sleep(LOOK);
        }
        bail!("no ACK within {LIMIT:?}")
    }
}
