//! Key sets over real HTTP: from a scripted key server into the plan of a running control plane.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "test code"
)]

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, Request, StatusCode, header},
    response::{IntoResponse, Response},
};
use postern::{
    control_plane::ControlPlane,
    reload::Reloads,
    serve::{Followed, follow},
};
use postern_base::node::NodeIdentity;
use postern_compile::{
    keys::{Content, Fetch, Fetched, client::Client},
    snapshot::{FilterCode, Snapshot},
};
use postern_model::KeyUri;
use postern_proto::plan::v1::{Issuer, Plan};
use prost::Message;
use serde_json::{Value, json};
use tokio::{net::TcpListener, time};

/// What the server answers.
#[derive(Clone, Default)]
struct Script {
    status: StatusCode,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    delay: Duration,
}

#[derive(Clone, Default)]
struct KeyServer {
    script: Arc<Mutex<Script>>,
    asked: Arc<Mutex<Vec<HeaderMap>>>,
}

impl KeyServer {
    async fn start() -> (Self, SocketAddr) {
        let server = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (server, address)
    }

    fn serve(&self, keys: &[Value]) {
        self.play(Script { body: json!({ "keys": keys }).to_string().into_bytes(), ..Script::default() });
    }

    fn play(&self, script: Script) {
        *self.script.lock().unwrap() = script;
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

async fn answer(State(server): State<KeyServer>, request: Request<axum::body::Body>) -> Response {
    server.asked.lock().unwrap().push(request.headers().clone());
    let script = server.script.lock().unwrap().clone();
    time::sleep(script.delay).await;
    let tag = script.headers.iter().find(|(name, _)| *name == "etag").map(|(_, tag)| tag.as_str());
    if tag.is_some() && request.headers().get(header::IF_NONE_MATCH).and_then(|tag| tag.to_str().ok()) == tag {
        return StatusCode::NOT_MODIFIED.into_response();
    }
    let mut response = (script.status, script.body).into_response();
    for (name, value) in script.headers {
        response.headers_mut().append(name, value.parse().unwrap());
    }
    response
}

fn jwk(name: &str, id: &str) -> Value {
    let all: Value = serde_json::from_str(include_str!("../../compile/tests/fixtures/keys.json")).unwrap();
    let mut jwk = all[name]["jwk"].clone();
    jwk["kid"] = json!(id);
    jwk
}

async fn fetch(address: SocketAddr, path: &str, tag: Option<&str>) -> Fetched {
    let uri = KeyUri::try_from(format!("http://{address}{path}")).unwrap();
    let fetch = Fetch { uri, tag: tag.map(str::to_owned) };
    tokio::task::spawn_blocking(move || Client::default().fetch(&fetch)).await.unwrap()
}

#[tokio::test]
async fn fetches_a_set_with_its_tag_and_age() {
    let (server, address) = KeyServer::start().await;
    let headers = vec![("etag", "\"1\"".to_owned()), ("cache-control", "max-age=60".to_owned())];
    server.play(Script { body: b"{}".to_vec(), headers, ..Script::default() });
    let max_age = Some(Duration::from_secs(60));
    let content = Content::Body(b"{}".to_vec(), Some("\"1\"".into()));
    assert_eq!(fetch(address, "/keys", None).await, Fetched::Fresh { content, max_age });
    let unchanged = Fetched::Fresh { content: Content::Unchanged, max_age: None };
    assert_eq!(fetch(address, "/keys", Some("\"1\"")).await, unchanged);
}

#[tokio::test]
async fn refuses_answers_that_are_too_large_too_slow_or_no_success() {
    let (server, address) = KeyServer::start().await;
    let check = async |script: Script, words: &str| {
        server.play(script);
        match fetch(address, "/keys", None).await {
            Fetched::Failed(message) => assert!(message.contains(words), "{message}"),
            other => panic!("{words}: {other:?}"),
        }
    };
    check(Script { body: vec![b' '; 600 * 1024], ..Script::default() }, "more than 524288 bytes").await;
    check(Script { status: StatusCode::INTERNAL_SERVER_ERROR, ..Script::default() }, "500").await;
    check(Script { status: StatusCode::NO_CONTENT, ..Script::default() }, "204").await;
    let to = |location: &str| Script {
        status: StatusCode::FOUND,
        headers: vec![("location", location.to_owned())],
        ..Script::default()
    };
    check(to("/again"), "more than 3 redirects").await;
    check(to("http://192.0.2.1/keys"), "anyone on the way").await;
    check(Script { headers: vec![], ..to("/") }, "does not say where").await;
    check(Script { delay: Duration::from_secs(11), ..Script::default() }, "within 10 seconds").await;
    let nobody = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    assert!(matches!(fetch(nobody, "/keys", None).await, Fetched::Failed(_)));
}

/// A control plane with one issuer, which publishes at this address.
struct World {
    plane: Arc<ControlPlane>,
    directory: tempfile::TempDir,
}

impl World {
    fn start(address: SocketAddr) -> Self {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), address, "");
        let plane = Arc::new(ControlPlane::new(FilterCode::new(b"code".to_vec(), None)));
        let (shared, path) = (Arc::clone(&plane), directory.path().to_owned());
        tokio::spawn(async move {
            follow(shared, Some(Followed { path: &path, allow_unguarded: false, strict: true }), Reloads::never())
                .await
                .unwrap()
        });
        Self { plane, directory }
    }

    fn snapshot(&self) -> Option<Arc<Snapshot>> {
        let publication = self.plane.publications().latest()?;
        Some(publication.snapshot_for(&NodeIdentity::default()))
    }

    fn issuer(&self) -> Option<Issuer> {
        let snapshot = self.snapshot()?;
        Some(Plan::decode(snapshot.plan().bytes()).unwrap().issuers.remove(0))
    }

    fn revision(&self) -> String {
        self.plane.publications().latest().unwrap().revision().to_string()
    }

    fn status(&self) -> Value {
        serde_json::to_value(self.plane.keys().report()).unwrap()[0].clone()
    }

    /// The `kid`s in force.
    fn ids(&self) -> Vec<String> {
        let Some(snapshot) = self.snapshot() else { return vec![] };
        let plan = Plan::decode(snapshot.plan().bytes()).unwrap();
        plan.issuers[0].keys.iter().map(|key| plan.strings[key.id as usize].clone()).collect()
    }
}

fn write(directory: &Path, address: SocketAddr, more: &str) {
    let issuer = format!("{{issuer: 'https://issuer', jwksUri: 'http://{address}/keys', refresh: 1s{more}}}");
    // A plan has only the issuers that its steps name.
    let text = format!(
        "apiVersion: postern/v1\nkind: Issuer\nmetadata: {{name: main}}\nspec: {issuer}\n---\n\
         apiVersion: postern/v1\nkind: RoutePolicy\nmetadata: {{name: p}}\n\
         spec: {{targetRef: {{kind: Mesh}}, request: [{{policy: jwtValidation}}]}}\n"
    );
    fs::write(directory.join(".draft"), text).unwrap();
    fs::rename(directory.join(".draft"), directory.join("issuer.yaml")).unwrap();
}

async fn until(what: &str, fits: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if fits() {
            return;
        }
        time::sleep(Duration::from_millis(20)).await;
    }
    panic!("waited in vain for {what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_come_rotate_and_stay_through_an_outage() {
    let (server, address) = KeyServer::start().await;
    server.play(Script { status: StatusCode::SERVICE_UNAVAILABLE, ..Script::default() });
    let world = World::start(address);
    // Nothing waits for the keys, and the plan says that there are none.
    until("the first plan", || world.issuer().is_some_and(|issuer| issuer.keys_unavailable)).await;
    until("the failure in the status", || world.status()["lastError"]["message"].to_string().contains("503")).await;
    assert_eq!(world.status()["keys"], 0);

    let first = world.revision();
    server.serve(&[jwk("p256", "a")]);
    until("the first key", || world.ids() == ["a"]).await;
    assert!(!world.issuer().unwrap().keys_unavailable);
    assert_ne!(world.revision(), first);
    server.serve(&[jwk("p256", "a"), jwk("p384", "b")]);
    until("both keys", || world.ids() == ["a", "b"]).await;
    server.serve(&[jwk("p384", "b")]);
    until("the new key alone", || world.ids() == ["b"]).await;

    let revision = world.revision();
    for script in [
        Script { status: StatusCode::BAD_GATEWAY, ..Script::default() },
        Script { body: b"<html>".to_vec(), ..Script::default() },
        Script { body: b"{\"keys\": []}".to_vec(), ..Script::default() },
    ] {
        let asked = server.asked();
        server.play(script);
        until("two more fetches", || server.asked() >= asked + 2).await;
        until("an error", || world.status()["lastError"].is_object()).await;
        assert_eq!((world.ids(), world.revision()), (vec!["b".to_owned()], revision.clone()));
        assert_eq!(world.status()["keys"], 1);
    }
    server.serve(&[jwk("p384", "b")]);
    until("the end of the outage", || world.status()["lastError"].is_null()).await;
    assert_eq!(world.revision(), revision, "the same keys are the same revision");
}

#[tokio::test(flavor = "multi_thread")]
async fn follows_the_resource_to_another_place() {
    let (server, address) = KeyServer::start().await;
    server.serve(&[jwk("p256", "a"), jwk("rsa2048", "r")]);
    let world = World::start(address);
    until("the keys", || world.ids() == ["a", "r"]).await;
    write(world.directory.path(), address, ", algorithms: [RS256]");
    until("what is left of them", || world.ids() == ["r"]).await;

    let (other, elsewhere) = KeyServer::start().await;
    other.serve(&[jwk("rsa3072", "z")]);
    write(world.directory.path(), elsewhere, "");
    until("the other keys", || world.ids() == ["z"]).await;
    let asked = server.asked();
    let seen = other.asked();
    until("further fetches", || other.asked() >= seen + 3).await;
    assert!(server.asked() <= asked + 1, "nobody wants the first place any more");
    // A change that is refused changes neither keys nor what is fetched, and a rotation does not hide the refusal.
    fs::write(world.directory.path().join("broken.yaml"), "kind: Nonsense\n").unwrap();
    until("the refusal", || !world.plane.in_force().refused_change().is_empty()).await;
    other.serve(&[jwk("rsa2048", "y")]);
    until("the rotation", || world.ids() == ["y"]).await;
    assert!(!world.plane.in_force().refused_change().is_empty());
}
