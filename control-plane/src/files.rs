//! Delivery to files, for an Envoy with `path_config_source`s: a `DiscoveryResponse` in JSON for all clusters, one for all
//! listeners, and one for each of what they refer to, since Envoy takes such a file for that one resource. A file that
//! changes is replaced as a whole, by a rename, which is what Envoy watches for.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use envoy_types::pb::envoy::config::core::v3::Node;
use tokio::{sync::watch, time};

use crate::{
    model::{self, Diagnostics},
    node::{DEFAULT_MESH, NodeIdentity},
    protobuf_json::{self, Faults, Unknown, WriteError},
    publication::Publication,
    redirect::{Source, response},
    snapshot::{Resource, ResourceType, Selection, Snapshot},
};

/// How long to wait before another attempt, if a directory could not be written to.
const RETRY: Duration = Duration::from_secs(5);

/// The types that are delivered: each before those that refer to it, since Envoy refuses a path that is not there.
const ORDER: [ResourceType; 6] = [
    ResourceType::Secret,
    ResourceType::Endpoints,
    ResourceType::Cluster,
    ResourceType::ExtensionConfig,
    ResourceType::RouteConfiguration,
    ResourceType::Listener,
];

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
    /// The file system said no.
    #[error("{}: {error}", path.display())]
    File {
        /// What was to be read or written.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// The file that describes the node is not YAML.
    #[error(transparent)]
    Node(Diagnostics),
    /// The file that describes the node does not describe one.
    #[error("{}: node: {faults}", path.display())]
    NodeFields {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        faults: Faults,
    },
    /// A resource has no JSON.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The writing was cut short.
    #[error("the delivery was cut short: {0}")]
    Ended(#[from] tokio::task::JoinError),
}

/// A directory, and the node that it is for.
#[derive(Debug, Clone)]
pub struct Delivery {
    directory: PathBuf,
    source: Source,
    node: NodeIdentity,
}

impl Options {
    /// The delivery that is asked for, if any, with its directory there to be written to.
    pub fn delivery(&self) -> Result<Option<Delivery>, DeliveryError> {
        let Some(directory) = &self.deliver_to else { return Ok(None) };
        let node = match &self.deliver_node {
            Some(path) => read_node(path)?,
            None => NodeIdentity { mesh: DEFAULT_MESH.to_owned(), ..NodeIdentity::default() },
        };
        Delivery::new(directory, self.deliver_as.as_deref(), node).map(Some)
    }
}

impl Delivery {
    /// A delivery to a directory, which is made, and which lies at `seen_as` for the node.
    pub fn new(directory: &Path, seen_as: Option<&Path>, node: NodeIdentity) -> Result<Self, DeliveryError> {
        let failed = |error| DeliveryError::File { path: directory.to_owned(), error };
        for folder in ORDER.into_iter().filter_map(folder) {
            fs::create_dir_all(directory.join(folder)).map_err(failed)?;
        }
        let directory = directory.canonicalize().map_err(failed)?;
        let source = Source::Files { directory: seen_as.unwrap_or(&directory).to_owned() };
        Ok(Self { directory, source, node })
    }

    /// Delivers what is in force, now and after every change, until there is nobody left to change it. What fails is
    /// logged and tried again.
    pub async fn follow(self, mut publications: watch::Receiver<Option<Arc<Publication>>>) {
        loop {
            let publication = publications.borrow_and_update().clone();
            let mut failed = false;
            if let Some(publication) = publication
                && let Err(error) = self.deliver(&publication).await
            {
                tracing::error!("not delivered: {error}");
                failed = true;
            }
            let changed = publications.changed();
            let changed = if failed { time::timeout(RETRY, changed).await.unwrap_or(Ok(())) } else { changed.await };
            if changed.is_err() {
                return;
            }
        }
    }

    async fn deliver(&self, publication: &Publication) -> Result<(), DeliveryError> {
        let (delivery, snapshot) = (self.clone(), publication.snapshot_for(&self.node));
        let revision = publication.revision().short().to_owned();
        let written = tokio::task::spawn_blocking(move || delivery.write(&snapshot)).await??;
        if written > 0 {
            tracing::info!(revision, files = written, directory = %self.directory.display(), "delivered");
        }
        Ok(())
    }

    /// Makes the directory say what a snapshot says, and returns how many files had to change.
    pub fn write(&self, snapshot: &Snapshot) -> Result<usize, DeliveryError> {
        // All of them are made before the first is written: a snapshot is delivered whole or not at all.
        let files: Vec<_> = self.files(snapshot).collect::<Result<_, _>>()?;
        let mut written = 0;
        for (place, kind, content) in &files {
            let path = self.directory.join(place);
            let mode = if *kind == ResourceType::Secret { 0o640 } else { 0o644 };
            let changed = replace(&path, content.as_bytes(), mode);
            written += usize::from(changed.map_err(|error| DeliveryError::File { path, error })?);
        }
        self.remove_others(&files.iter().map(|(place, _, _)| self.directory.join(place)).collect())?;
        Ok(written)
    }

    /// Every file with its content, in the order of writing.
    fn files(&self, snapshot: &Snapshot) -> impl Iterator<Item = Result<(PathBuf, ResourceType, String), WriteError>> {
        ORDER.into_iter().flat_map(move |kind| {
            let all = snapshot.select(kind, &Selection::Everything);
            let sets = match folder(kind) {
                None => vec![(place(kind, ""), all)],
                Some(_) => all
                    .resources
                    .iter()
                    .map(|one| (place(kind, &one.name), [Arc::clone(one)].into_iter().collect()))
                    .collect(),
            };
            sets.into_iter().map(move |(place, set)| {
                let encode = |resource: &Arc<Resource>| Ok(self.source.encode(resource)?.to_string().into());
                let resources = set.resources.iter().map(encode).collect::<Result<Vec<_>, WriteError>>()?;
                Ok((place, kind, response(kind, &set.version, &resources)))
            })
        })
    }

    /// Removes the files of resources that are gone, once nothing refers to them any more.
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

/// Where a resource is, below the directory. Clusters and listeners are in one file each, whatever the name.
pub fn place(kind: ResourceType, name: &str) -> PathBuf {
    match folder(kind) {
        Some(folder) => Path::new(folder).join(format!("{}.json", file_name(name))),
        None => PathBuf::from(if kind == ResourceType::Cluster { "cds.json" } else { "lds.json" }),
    }
}

/// The folder of types that have a file for each resource.
fn folder(kind: ResourceType) -> Option<&'static str> {
    match kind {
        ResourceType::Secret => Some("sds"),
        ResourceType::Endpoints => Some("eds"),
        ResourceType::ExtensionConfig => Some("ecds"),
        ResourceType::RouteConfiguration => Some("rds"),
        ResourceType::Cluster | ResourceType::Listener | ResourceType::VirtualHost => None,
    }
}

/// A name that can stand in a folder: all but letters, digits, `-`, `_` and inner dots is written as `%` and two digits.
fn file_name(name: &str) -> String {
    let mut file = String::new();
    for byte in name.bytes() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && !file.is_empty());
        if plain {
            file.push(byte.into());
        } else {
            // Writing to a string does not fail.
            let _ = write!(file, "%{byte:02x}");
        }
    }
    file
}

/// Puts content at a path, whole at every moment, unless it is there already. Says whether it was not.
fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<bool> {
    if fs::read(path).is_ok_and(|present| present == content) {
        return Ok(false);
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = folder.join(format!(".{name}.new"));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&draft)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(folder)?.sync_all()?;
    Ok(true)
}

fn read_node(path: &Path) -> Result<NodeIdentity, DeliveryError> {
    let bytes = fs::read(path).map_err(|error| DeliveryError::File { path: path.to_owned(), error })?;
    let file = model::File { name: path.display().to_string(), bytes };
    let document = model::read_document(&file).map_err(DeliveryError::Node)?;
    let node = document.get("node").unwrap_or(&serde_json::Value::Null);
    let node: Node = protobuf_json::read(node, Unknown::Refused)
        .map_err(|faults| DeliveryError::NodeFields { path: path.to_owned(), faults })?;
    Ok(NodeIdentity::read(&node))
}
