//! Delivery to files, for an Envoy with `path_config_source`s: one `DiscoveryResponse` in JSON for all clusters, one
//! for all listeners, and one for each resource that they refer to, because Envoy takes such a file for that one
//! resource. A file is replaced whole by a rename, which is what Envoy watches for. Files are readable only by the user
//! of this process, since plans and secrets are among them.

mod departing;
mod replace;

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use clap::Args;
use envoy_types::pb::envoy::config::core::v3::Node;
use postern_base::node::{DEFAULT_MESH, IdentityError, NodeIdentity};
use postern_compile::{
    snapshot::{Resource, ResourceSet, ResourceType, Selection, Snapshot},
    support::{Unsupported, unsupported},
};
use postern_model::{
    Diagnostics,
    protobuf_json::{self, Faults, Unknown, WriteError},
};
use postern_release::publication::Publication;
use tokio::{sync::watch, time};

pub use self::departing::Departing;
pub use crate::redirect::place;

use self::replace::{private_folder, replace};
use crate::redirect::{Source, folder, response};

/// The delay before another attempt after a directory could not be written to.
const RETRY: Duration = Duration::from_secs(5);

/// The delivered types, each before those that refer to it: Envoy refuses a path that does not exist.
const ORDER: [ResourceType; 6] = [
    ResourceType::Secret,
    ResourceType::Endpoints,
    ResourceType::Cluster,
    ResourceType::ExtensionConfig,
    ResourceType::RouteConfiguration,
    ResourceType::Listener,
];

/// The types that routes refer to, directly or not.
const BEFORE_ROUTES: [ResourceType; 3] = [ResourceType::Secret, ResourceType::Endpoints, ResourceType::Cluster];

/// The options of `postern serve` about it.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Also write what is in force to files in this directory, for an Envoy that reads `cds.json` and `lds.json` there
    #[arg(long, value_name = "DIR")]
    deliver_to: Option<PathBuf>,
    /// The node that the files are for: a YAML file with its `node`, such as its bootstrap; default: one that says
    /// nothing of itself
    #[arg(long, value_name = "FILE", requires = "deliver_to")]
    deliver_node: Option<PathBuf>,
    /// Where that directory lies for the Envoy, if it is elsewhere; default: where it lies here
    #[arg(long, value_name = "PATH", requires = "deliver_to")]
    deliver_as: Option<PathBuf>,
}

/// Why files cannot be delivered.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// A file could not be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// The file that describes the node is not YAML.
    #[error(transparent)]
    Node(Diagnostics),
    /// The file that describes the node has wrong fields.
    #[error("{}: node: {faults}", path.display())]
    NodeFields {
        /// The file.
        path: PathBuf,
        /// The errors.
        faults: Faults,
    },
    /// The node's identity exceeds the limits.
    #[error("{}: {error}", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// The part that is too long.
        error: IdentityError,
    },
    /// The node's Envoy is not supported.
    #[error("{}: node: unsupported: {reason}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: Unsupported,
    },
    /// A resource cannot be written as JSON.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The thread that writes has ended.
    #[error("the delivery was cut short: {0}")]
    Ended(#[from] tokio::task::JoinError),
}

/// How long each step of a delivery waits for Envoy, which watches each file separately, reads them in any order, and
/// does not acknowledge.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// After clusters and their endpoints have changed, and before routes and listeners do.
    pub before_routes: Duration,
    /// After everything has changed, and before unused resources are removed.
    pub before_removal: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { before_routes: Duration::from_millis(200), before_removal: Duration::from_secs(5) }
    }
}

/// A directory, and the node that it is for.
#[derive(Debug, Clone)]
pub struct Delivery {
    directory: PathBuf,
    source: Source,
    node: NodeIdentity,
    patience: Patience,
}

impl Options {
    /// The delivery that was asked for, if any. Its directory is created.
    pub fn delivery(&self) -> Result<Option<Delivery>, DeliveryError> {
        let Some(directory) = &self.deliver_to else { return Ok(None) };
        let node = match &self.deliver_node {
            Some(path) => read_node(path)?,
            None => NodeIdentity { mesh: DEFAULT_MESH.to_owned(), ..NodeIdentity::default() },
        };
        Delivery::new(directory, self.deliver_as.as_deref(), node, Patience::default()).map(Some)
    }
}

impl Delivery {
    /// A delivery to a directory, which is created. The node sees the directory at `seen_as`.
    pub fn new(
        directory: &Path,
        seen_as: Option<&Path>,
        node: NodeIdentity,
        patience: Patience,
    ) -> Result<Self, DeliveryError> {
        let failed = |error| DeliveryError::File { path: directory.to_owned(), error };
        for folder in ORDER.into_iter().filter_map(folder) {
            private_folder(&directory.join(folder)).map_err(failed)?;
        }
        let directory = directory.canonicalize().map_err(failed)?;
        let source = Source::Files { directory: seen_as.unwrap_or(&directory).to_owned() };
        Ok(Self { directory, source, node, patience })
    }

    /// Delivers what is in force, now and after every change, until the publications end. Errors are logged and
    /// retried.
    pub async fn follow(self, mut publications: watch::Receiver<Option<Arc<Publication>>>) {
        let mut departing = Departing::default();
        let mut delivered: Option<Arc<Snapshot>> = None;
        loop {
            let latest = publications.borrow_and_update().clone();
            let node = self.node.clone();
            let snapshot = match latest {
                Some(latest) => latest.prepare(move |latest| latest.snapshot_for(&node)).await,
                None => None,
            };
            let mut again = None;
            let mut complete = false;
            if let Some(snapshot) = snapshot {
                if let Some(before) = &delivered {
                    departing.moved(before, &snapshot);
                }
                match self.deliver(&snapshot, &departing).await {
                    Ok(()) => {
                        complete = true;
                        again = (!departing.is_empty()).then_some(self.patience.before_removal);
                    }
                    Err(error) => {
                        tracing::error!("not delivered: {error}");
                        again = Some(RETRY);
                    }
                }
                delivered = Some(snapshot);
            }
            match wait(&mut publications, again).await {
                Wait::Passed if complete => departing = Departing::default(),
                Wait::Passed | Wait::Changed => {}
                Wait::Ended => return,
            }
        }
    }

    async fn deliver(&self, snapshot: &Arc<Snapshot>, departing: &Departing) -> Result<(), DeliveryError> {
        let (delivery, snapshot, departing) = (self.clone(), Arc::clone(snapshot), departing.clone());
        let revision = snapshot.revision().short().to_owned();
        let written = tokio::task::spawn_blocking(move || delivery.write(&snapshot, &departing)).await??;
        if written > 0 {
            tracing::info!(revision, files = written, directory = %self.directory.display(), "delivered");
        }
        Ok(())
    }

    /// Writes a snapshot and the departing resources to the directory. Returns the number of files that had to change.
    pub fn write(&self, snapshot: &Snapshot, departing: &Departing) -> Result<usize, DeliveryError> {
        // All files are encoded before the first is written, so that a snapshot is delivered whole or not at all.
        let files: Vec<_> = self.files(snapshot, departing).collect::<Result<_, _>>()?;
        let (first, then): (Vec<_>, Vec<_>) = files.iter().partition(|file| BEFORE_ROUTES.contains(&file.kind));
        let mut written = self.write_all(&first)?;
        if written > 0 {
            thread::sleep(self.patience.before_routes);
        }
        written += self.write_all(&then)?;
        self.remove_others(&files.iter().map(|file| self.directory.join(&file.place)).collect())?;
        Ok(written)
    }

    fn write_all(&self, files: &[&Delivered]) -> Result<usize, DeliveryError> {
        let mut written = 0;
        for Delivered { place, content, .. } in files {
            let path = self.directory.join(place);
            let changed = replace(&path, content.as_bytes());
            written += usize::from(changed.map_err(|error| DeliveryError::File { path, error })?);
        }
        Ok(written)
    }

    /// Every file, in the order of writing.
    fn files(&self, snapshot: &Snapshot, departing: &Departing) -> impl Iterator<Item = Result<Delivered, WriteError>> {
        ORDER.into_iter().flat_map(move |kind| {
            let present = snapshot.select(kind, &Selection::Everything).resources;
            let all: Vec<_> = present.iter().chain(departing.of(kind)).cloned().collect();
            let sets: Vec<(PathBuf, ResourceSet)> = match folder(kind) {
                None => vec![(place(kind, ""), all.into_iter().collect())],
                Some(_) => all.into_iter().map(|one| (place(kind, &one.name), [one].into_iter().collect())).collect(),
            };
            sets.into_iter().map(move |(place, set)| {
                let encode = |resource: &Arc<Resource>| Ok(self.source.encode(resource)?.to_string().into());
                let resources = set.resources.iter().map(encode).collect::<Result<Vec<_>, WriteError>>()?;
                Ok(Delivered { place, kind, content: response(kind, &set.version, &resources) })
            })
        })
    }

    /// Removes the files of resources that are no longer delivered, after nothing refers to them.
    fn remove_others(&self, delivered: &BTreeSet<PathBuf>) -> Result<(), DeliveryError> {
        for folder in ORDER.into_iter().filter_map(folder) {
            let folder = self.directory.join(folder);
            let failed = |error| DeliveryError::File { path: folder.clone(), error };
            for entry in fs::read_dir(&folder).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                if path.extension().is_some_and(|extension| extension == "json") && !delivered.contains(&path) {
                    fs::remove_file(&path).map_err(failed)?;
                }
            }
        }
        Ok(())
    }
}

/// A file with its intended content.
#[derive(Debug)]
struct Delivered {
    place: PathBuf,
    kind: ResourceType,
    content: String,
}

/// How a wait ended.
enum Wait {
    /// Something else was put in force.
    Changed,
    /// The time has passed.
    Passed,
    /// The publications have ended.
    Ended,
}

async fn wait(publications: &mut watch::Receiver<Option<Arc<Publication>>>, most: Option<Duration>) -> Wait {
    let changed = async { if publications.changed().await.is_ok() { Wait::Changed } else { Wait::Ended } };
    match most {
        Some(most) => time::timeout(most, changed).await.unwrap_or(Wait::Passed),
        None => changed.await,
    }
}

fn read_node(path: &Path) -> Result<NodeIdentity, DeliveryError> {
    let bytes = fs::read(path).map_err(|error| DeliveryError::File { path: path.to_owned(), error })?;
    let file = postern_model::File { name: path.display().to_string(), bytes };
    let document = postern_model::read_document(&file).map_err(DeliveryError::Node)?;
    let node = document.get("node").unwrap_or(&serde_json::Value::Null);
    let node: Node = protobuf_json::read(node, Unknown::Refused)
        .map_err(|faults| DeliveryError::NodeFields { path: path.to_owned(), faults })?;
    let node = NodeIdentity::read(&node).map_err(|error| DeliveryError::Identity { path: path.to_owned(), error })?;
    match unsupported(&node) {
        None => Ok(node),
        Some(reason) => Err(DeliveryError::Unsupported { path: path.to_owned(), reason }),
    }
}
