//! REST-JSON polling: the discovery services for Envoys that poll instead of keeping a stream. A poll says what its
//! sender has, so the server keeps no state for it; whether it refused something is not known.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use axum::{
    Router,
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use postern_base::{
    bounded::{self, NAME, RESOURCE_NAME},
    node::{IdentityError, NodeIdentity},
};
use postern_compile::{
    snapshot::{Resource, ResourceType, Selection, Snapshot},
    support::{Unsupported, unsupported},
};
use postern_model::protobuf_json::{self, Faults, Unknown, WriteError};
use postern_release::publication::Publications;
use serde_json::json;

use crate::{
    redirect::{Source, response},
    xds::limits::MOST_NAMES,
};

/// The paths that Envoy polls, by the declarations of its services. Virtual hosts are available on streams only.
const PATHS: [(&str, ResourceType); 6] = [
    ("/v3/discovery:clusters", ResourceType::Cluster),
    ("/v3/discovery:endpoints", ResourceType::Endpoints),
    ("/v3/discovery:extension_configs", ResourceType::ExtensionConfig),
    ("/v3/discovery:listeners", ResourceType::Listener),
    ("/v3/discovery:routes", ResourceType::RouteConfiguration),
    ("/v3/discovery:secrets", ResourceType::Secret),
];

/// The maximum number of cluster names that encodings are cached for. The Envoys of one fleet use one or two.
const MOST_CLUSTERS: usize = 8;

/// The router of the services.
pub fn router(publications: Publications) -> Router {
    let polls = Arc::new(Polls { publications, encoded: Mutex::default() });
    PATHS.into_iter().fold(Router::new(), |router, (path, kind)| {
        let polls = Arc::clone(&polls);
        let answer = move |State(polls): State<Arc<Polls>>, headers: HeaderMap, body: Result<Bytes, BytesRejection>| {
            poll(polls, kind, headers, body)
        };
        router.merge(Router::new().route(path, post(answer)).with_state(polls))
    })
}

/// Why a poll gets no resources.
#[derive(Debug, thiserror::Error)]
enum PollError {
    #[error("the body is not JSON: {0}")]
    Json(serde_json::Error),
    #[error("the body is not a DiscoveryRequest: {0}")]
    Request(Faults),
    #[error("the body cannot be read: {0}")]
    Body(BytesRejection),
    #[error("node: missing required field `id`")]
    Node,
    #[error("{0}")]
    Identity(#[from] IdentityError),
    #[error("`{field}` is {size} bytes long: at most {most} are taken")]
    TooLong { field: &'static str, size: usize, most: usize },
    #[error("`resource_names` has {0} entries: at most {MOST_NAMES} are taken")]
    TooMany(usize),
    #[error("type_url: expected `{}` at this path", .0.type_url())]
    Type(ResourceType),
    #[error("node: unsupported: {0}")]
    Unsupported(#[from] Unsupported),
    #[error("there is nothing in force yet")]
    NothingYet,
    #[error("the resources cannot be written as JSON: {0}")]
    Write(#[from] WriteError),
    #[error("the answer could not be made: the log says why")]
    Ended,
}

impl PollError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Json(_)
            | Self::Request(_)
            | Self::Node
            | Self::Identity(_)
            | Self::TooLong { .. }
            | Self::TooMany(_)
            | Self::Type(_) => StatusCode::BAD_REQUEST,
            Self::Body(rejection) => rejection.status(),
            Self::Unsupported(_) => StatusCode::FORBIDDEN,
            Self::NothingYet => StatusCode::SERVICE_UNAVAILABLE,
            Self::Write(_) | Self::Ended => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for PollError {
    /// Answers with a problem document (RFC 9457).
    fn into_response(self) -> Response {
        let status = self.status();
        if status.is_server_error() {
            tracing::warn!("a poll gets no answer: {self}");
        }
        let title = status.canonical_reason().unwrap_or_default();
        let detail = bounded::message(self.to_string());
        let problem = json!({"type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail});
        (status, [(header::CONTENT_TYPE, "application/problem+json")], problem.to_string()).into_response()
    }
}

async fn poll(
    polls: Arc<Polls>,
    kind: ResourceType,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, PollError> {
    let body = body.map_err(PollError::Body)?;
    // Envoy puts the name of the polled cluster in `Host`. Senders that need no reference to us may put anything there.
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let source = Source::Poll { cluster: host.to_owned() };
    // Some Envoys send a hundred kilobytes of features with each poll; reading them must not delay streams.
    let question = on_a_thread(move || Question::read(kind, source, &body)).await?;
    let publication = polls.publications.latest().ok_or(PollError::NothingYet)?;
    let release = publication.shared_release_for(&question.node);
    let snapshot = match release.compiled_for(&question.node) {
        Some(snapshot) => snapshot,
        None => {
            let node = question.node.clone();
            release.prepare(move |release| release.snapshot_for(&node)).await.ok_or(PollError::Ended)?
        }
    };
    Ok(match on_a_thread(move || polls.answer(&snapshot, question)).await? {
        Polled::Unchanged => StatusCode::NOT_MODIFIED.into_response(),
        Polled::Resources(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
    })
}

/// Runs slow work on a thread that may block.
async fn on_a_thread<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, PollError> + Send + 'static,
) -> Result<T, PollError> {
    let done = tokio::task::spawn_blocking(act).await;
    done.inspect_err(|error| tracing::error!("a poll was not answered: {error}")).unwrap_or(Err(PollError::Ended))
}

/// A valid poll.
#[derive(Debug)]
struct Question {
    kind: ResourceType,
    source: Source,
    node: NodeIdentity,
    /// The version that its sender has.
    version: String,
    selection: Selection,
}

impl Question {
    fn read(kind: ResourceType, source: Source, body: &[u8]) -> Result<Self, PollError> {
        let json = serde_json::from_slice(body).map_err(PollError::Json)?;
        let request: DiscoveryRequest = protobuf_json::read(&json, Unknown::Ignored).map_err(PollError::Request)?;
        let node = request.node.filter(|node| !node.id.is_empty()).ok_or(PollError::Node)?;
        if !request.type_url.is_empty() && request.type_url != kind.type_url() {
            return Err(PollError::Type(kind));
        }
        let node = NodeIdentity::read(&node)?;
        unsupported(&node).map_or(Ok(()), Err)?;
        check_names(&request.version_info, &request.resource_names)?;
        let selection = select(kind, request.resource_names);
        Ok(Self { kind, source, node, version: request.version_info, selection })
    }
}

/// The response to a valid poll.
#[derive(Debug)]
enum Polled {
    /// The sender's version is current.
    Unchanged,
    /// A `DiscoveryResponse`.
    Resources(String),
}

/// Resources as JSON, by type, name and the source that they refer to.
type Encoded = BTreeMap<(Source, ResourceType, String), Arc<str>>;

struct Polls {
    publications: Publications,
    /// The cached encodings of each snapshot that is still in use.
    encoded: Mutex<Vec<(Weak<Snapshot>, Encoded)>>,
}

impl Polls {
    fn answer(&self, snapshot: &Arc<Snapshot>, question: Question) -> Result<Polled, PollError> {
        let Question { kind, source, node, version, selection } = question;
        let set = snapshot.select(kind, &selection);
        tracing::debug!(node = node.id, %kind, version = set.version.short(), has = version, "polled");
        if version == set.version.as_str() {
            return Ok(Polled::Unchanged);
        }
        let resources = set.resources.iter().map(|resource| self.encode(snapshot, kind, &source, resource));
        let resources: Vec<_> = resources.collect::<Result<_, _>>()?;
        Ok(Polled::Resources(response(kind, &set.version, &resources)))
    }

    /// A resource as JSON. Usually encoded once for each snapshot, however many clients poll.
    fn encode(
        &self,
        snapshot: &Arc<Snapshot>,
        kind: ResourceType,
        source: &Source,
        resource: &Resource,
    ) -> Result<Arc<str>, WriteError> {
        let key = (source.clone(), kind, resource.name.clone());
        let known = self.with_encoded(snapshot, |encoded| encoded.get(&key).cloned());
        if let Some(text) = known {
            return Ok(text);
        }
        let text: Arc<str> = source.encode(resource)?.to_string().into();
        self.with_encoded(snapshot, |encoded| {
            let sources = encoded.keys().filter(|(_, of, name)| *of == kind && *name == resource.name).count();
            if sources < MOST_CLUSTERS {
                encoded.insert(key, Arc::clone(&text));
            }
        });
        Ok(text)
    }

    /// Looks at the encodings of a snapshot, and drops those of snapshots that are no longer in use.
    fn with_encoded<T>(&self, snapshot: &Arc<Snapshot>, look: impl FnOnce(&mut Encoded) -> T) -> T {
        let mut all = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(of, _)| of.strong_count() > 0);
        let place = all.iter().position(|(of, _)| std::ptr::eq(of.as_ptr(), Arc::as_ptr(snapshot)));
        if place.is_none() {
            all.push((Arc::downgrade(snapshot), Encoded::new()));
        }
        let last = all.len().saturating_sub(1);
        match all.get_mut(place.unwrap_or(last)) {
            Some((_, encoded)) => look(encoded),
            None => look(&mut Encoded::new()),
        }
    }
}

fn check_names(version: &str, names: &[String]) -> Result<(), PollError> {
    if names.len() > MOST_NAMES {
        return Err(PollError::TooMany(names.len()));
    }
    let names = names.iter().map(|name| ("resource_names", name.len(), RESOURCE_NAME));
    match names.chain([("version_info", version.len(), NAME)]).find(|(_, size, most)| size > most) {
        Some((field, size, most)) => Err(PollError::TooLong { field, size, most }),
        None => Ok(()),
    }
}

/// As on a stream: no names mean all resources, for types whose responses are the complete state.
fn select(kind: ResourceType, names: Vec<String>) -> Selection {
    let everything = names.iter().any(|name| name == "*") || (names.is_empty() && kind.is_full_state());
    if everything { Selection::Everything } else { Selection::Named(names.into_iter().collect()) }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use postern_compile::{pipeline::compile, snapshot::FilterCode};
    use postern_model::File;

    const SERVICE: &str = "apiVersion: postern/v1\nkind: Service\nmetadata: { name: users }\n\
        spec: { endpoints: [{ address: 127.0.0.1, port: 9000 }] }\n";

    fn polls() -> Polls {
        Polls { publications: watch::channel(None).1.into(), encoded: Mutex::default() }
    }

    fn snapshot(text: &str) -> Arc<Snapshot> {
        let file = File { name: "f".to_owned(), bytes: text.into() };
        Arc::new(compile(&[file], &FilterCode::new(Vec::new(), None)).unwrap())
    }

    fn poll(polls: &Polls, snapshot: &Arc<Snapshot>, cluster: &str) -> String {
        let source = Source::Poll { cluster: cluster.to_owned() };
        let question = Question::read(ResourceType::Cluster, source, br#"{"node": {"id": "a"}}"#).unwrap();
        match polls.answer(snapshot, question).unwrap() {
            Polled::Resources(text) => text,
            Polled::Unchanged => panic!("the poll has no version"),
        }
    }

    /// The number of cached encodings for each snapshot.
    fn kept(polls: &Polls) -> Vec<usize> {
        polls.encoded.lock().unwrap().iter().map(|(_, encoded)| encoded.len()).collect()
    }

    #[test]
    fn encodes_a_resource_once_and_forgets_it_with_its_snapshot() {
        let (polls, users) = (polls(), snapshot(SERVICE));
        let first = poll(&polls, &users, "postern");
        let texts = || polls.encoded.lock().unwrap()[0].1.values().map(Arc::as_ptr).collect::<Vec<_>>();
        let before = texts();
        assert_eq!(poll(&polls, &users, "postern"), first);
        assert_eq!((kept(&polls), texts()), (vec![1], before));
        drop(users);
        assert_ne!(poll(&polls, &snapshot(&SERVICE.replace("users", "orders")), "postern"), first);
        assert_eq!(kept(&polls), [1]);
    }

    #[test]
    fn keeps_no_more_encodings_than_a_fleet_can_need() {
        let (polls, users) = (polls(), snapshot(SERVICE));
        for number in 0..3 * MOST_CLUSTERS {
            let cluster = format!("cluster-{number}");
            assert!(poll(&polls, &users, &cluster).contains(&format!("[\"{cluster}\"]")));
        }
        assert_eq!(kept(&polls), [MOST_CLUSTERS]);
    }
}
