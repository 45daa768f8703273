//! Broken streams, and restarts of the control plane.

use std::{net::SocketAddr, path::Path, sync::Arc};

use postern::{
    control_plane::ControlPlane,
    serve::{Sockets, serve},
};
use postern_compile::snapshot::FilterCode;
use postern_deliver::discovery::{ClientState, Discovery, Options};
use postern_proto::discovery::v1::{PolicyDiscoveryRequest, PolicyDiscoveryResponse};
use postern_release::{
    releases::{KEPT, Releases},
    rollout::Strategy,
    store::Database,
};
use prost::{
    Message as _,
    bytes::{Buf as _, BufMut as _},
};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code, Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::http::uri::PathAndQuery,
    transport::Endpoint,
};

use crate::client::{Client, LIMIT, apply, control_plane, first, guarded, names, start, until};

/// A codec of raw bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put_slice(&message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let length = from.remaining();
        Ok(Some(from.copy_to_bytes(length).to_vec()))
    }
}

/// A client accepts what it gets and then sends an invalid message. Returns how its stream ends.
async fn breaks_off_with_garbage(server: SocketAddr, address: &str) -> Status {
    let channel = Endpoint::from_shared(format!("http://{server}")).unwrap().connect().await.unwrap();
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let (requests, receiver) = mpsc::channel::<Vec<u8>>(4);
    requests.send(first(address).encode_to_vec()).await.unwrap();
    let path = PathAndQuery::from_static("/postern.discovery.v1.PolicyDiscovery/StreamPolicies");
    let request = tonic::Request::new(ReceiverStream::new(receiver));
    let mut responses = client.streaming(request, path, Raw).await.unwrap().into_inner();
    let response = responses.message().await.unwrap().unwrap();
    let PolicyDiscoveryResponse { version_info, nonce, .. } = PolicyDiscoveryResponse::decode(&*response).unwrap();
    let ack = PolicyDiscoveryRequest { version_info, response_nonce: nonce, ..first(address) };
    requests.send(ack.encode_to_vec()).await.unwrap();
    requests.send(vec![0xff; 10]).await.unwrap();
    timeout(LIMIT, responses.message()).await.expect("the stream did not end").unwrap_err()
}

/// A client accepts what it gets, and then its connection breaks.
async fn loses_its_connection(server: SocketAddr, address: &str) -> Status {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let way = listener.local_addr().unwrap();
    let (break_off, broken) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut server = TcpStream::connect(server).await.unwrap();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
            _ = broken => {}
        }
    });
    let mut client = Client::connect(way, address).await;
    client.accept().await;
    break_off.send(()).unwrap();
    client.end().await
}

async fn states(discovery: &Discovery) -> Vec<(String, ClientState)> {
    let clients = discovery.report().await.into_iter().flat_map(|group| group.clients);
    clients.map(|client| (client.address.clone(), client.state())).collect()
}

#[tokio::test]
async fn stream_errors_remove_the_client_and_its_next_stream_starts_anew() {
    let plane = control_plane();
    apply(&plane, &guarded("first")).await;
    let (discovery, address) = start(&plane, Options::default()).await;
    let mut other = Client::connect(address, "other").await;
    other.accept().await;
    for garbage in [true, false] {
        let status = match garbage {
            true => breaks_off_with_garbage(address, "one").await,
            false => loses_its_connection(address, "one").await,
        };
        if garbage {
            assert_eq!(status.code(), Code::Internal, "the client is told: {status}");
        }
        let ready = ("other".to_owned(), ClientState::Ready);
        until("the client is removed", async || states(&discovery).await == [ready.clone()]).await;
        timeout(LIMIT, discovery.all_acked()).await.expect("who is gone is waited for");

        // Its earlier answers are forgotten: it has answered nothing yet, and is sent everything.
        let mut again = Client::connect(address, "one").await;
        let response = again.next_policies().await;
        assert_eq!(names(&response), ["users-api"]);
        assert_eq!(states(&discovery).await, [("one".to_owned(), ClientState::Pending), ready.clone()]);
        again.ack(&response).await;
        timeout(LIMIT, discovery.all_acked()).await.unwrap();
        assert_eq!(states(&discovery).await.first(), Some(&("one".to_owned(), ClientState::Ready)));
        drop(again);
        until("it left", async || states(&discovery).await.len() == 1).await;
    }
    assert!(other.health_check().await.0, "nobody else was touched");
}

/// A control plane with a runtime of its own, so that it can end as a process does.
struct Process {
    plane: Arc<ControlPlane>,
    address: SocketAddr,
    runtime: Runtime,
}

impl Process {
    fn start(state: &Path, xds: SocketAddr) -> Self {
        let runtime = Runtime::new().unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let sockets = runtime.block_on(Sockets::bind(xds, any)).unwrap();
        let address = sockets.xds_address().unwrap();
        let releases = Releases::new(Arc::new(Database::open(state).unwrap()), Strategy::AllAtOnce, KEPT);
        let plane = Arc::new(ControlPlane::with_releases(FilterCode::new(Vec::new(), None), releases));
        plane.commands().restore().wait().unwrap();
        runtime.spawn(serve(Arc::clone(&plane), sockets));
        Self { plane, address, runtime }
    }

    /// Breaks all of its connections. Returns the address.
    fn stop(self) -> SocketAddr {
        self.runtime.shutdown_timeout(LIMIT);
        self.plane.commands().end().wait().unwrap();
        self.address
    }
}

#[test]
fn control_plane_restarts_during_update_and_clients_get_the_latest_version() {
    let state = tempfile::tempdir().unwrap();
    let clients = Runtime::new().unwrap();
    let before = Process::start(state.path(), SocketAddr::from(([127, 0, 0, 1], 0)));
    clients.block_on(apply(&before.plane, &guarded("first")));
    let mut one = clients.block_on(Client::connect(before.address, "one"));
    let mut two = clients.block_on(Client::connect(before.address, "two"));
    let first = clients.block_on(one.accept());
    clients.block_on(two.accept());

    // One has the second version and has not answered it; the other has not read it when all connections break.
    clients.block_on(apply(&before.plane, &guarded("second")));
    let second = clients.block_on(one.next_policies());
    assert_ne!(second.version_info, first.version_info);
    let address = before.stop();
    for client in [&mut one, &mut two] {
        // The stream ends with an error; which one depends on what was under way.
        clients.block_on(client.end());
    }

    let restarted = Process::start(state.path(), address);
    let discovery = Discovery::new(Arc::clone(restarted.plane.clients()), Options::default());
    // One client reconnects with an empty state, the other with what it had.
    let mut one = clients.block_on(Client::connect(address, "one"));
    let request = PolicyDiscoveryRequest {
        version_info: first.version_info.clone(),
        response_nonce: first.nonce.clone(),
        ..crate::client::first("two")
    };
    let mut two = clients.block_on(Client::open(address, request));
    for client in [&mut one, &mut two] {
        let latest = clients.block_on(client.accept());
        assert_eq!((&latest.version_info, &latest.policies), (&second.version_info, &second.policies));
        assert_ne!(latest.nonce, second.nonce);
    }
    clients.block_on(async { timeout(LIMIT, discovery.all_acked()).await }).expect("both have answered");
}
