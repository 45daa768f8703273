//! Streams and connections that last with little traffic.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use postern::{
    http,
    serve::{Sockets, serve_with},
};
use postern_deliver::{
    discovery::{ClientState, Options},
    xds::Limits,
};
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::client::{Client, LIMIT, apply, control_plane, guarded, silence, start};

/// A proxy that counts connections.
struct Way {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Way {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let way = Self { address: listener.local_addr().unwrap(), connections: Arc::default() };
        let connections = Arc::clone(&way.connections);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(server).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        way
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn connections_with_discovery_streams_or_health_checks_alone_are_in_use() {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let sockets = Sockets::bind(any, any).await.unwrap();
    let (plane, address) = (control_plane(), sockets.xds_address().unwrap());
    let limits = Limits { idle_timeout: Duration::from_secs(2), ..Limits::default() };
    tokio::spawn(serve_with(Arc::clone(&plane), sockets, limits, http::Options::default(), Options::default()));
    apply(&plane, &guarded("first")).await;

    let (with_stream, with_checks) = (Way::to(address).await, Way::to(address).await);
    let mut streaming = Client::connect(with_stream.address, "streaming").await;
    streaming.accept().await;
    // Its stream ends at once; the connection stays, and all that it is used for are health checks.
    let mut checking = Client::connect(with_checks.address, "checking").await;
    checking.next_policies().await;
    let mut service = checking.service.clone();
    drop(checking);
    let check = || postern_proto::discovery::v1::HealthCheckRequest { client_address: "streaming".to_owned() };

    // One that was opened after them and is not used is cut off, so that they would have been too.
    let mut unused = TcpStream::connect(address).await.unwrap();
    let mut bytes = [0; 1024];
    let cut_off = async { while !matches!(unused.read(&mut bytes).await, Ok(0) | Err(_)) {} };
    let checks = async {
        loop {
            assert!(service.health_check(check()).await.unwrap().into_inner().connected);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        cut_off = timeout(LIMIT, cut_off) => cut_off.expect("it was not cut off"),
        () = checks => {}
    }
    assert!(service.health_check(check()).await.unwrap().into_inner().connected);
    apply(&plane, &guarded("second")).await;
    assert!(streaming.next_policies().await.policies[0].spec.contains("second"));
    assert_eq!((with_stream.connections(), with_checks.connections()), (1, 1), "nobody had to connect again");
}

#[tokio::test]
async fn a_quiet_client_with_a_live_stream_stays_connected_and_is_sent_what_is_new() {
    let plane = control_plane();
    apply(&plane, &guarded("first")).await;
    let (discovery, address) = start(&plane, silence(Duration::from_millis(50))).await;
    let mut quiet = Client::connect(address, "quiet").await;
    quiet.accept().await;
    let mut owing = Client::connect(address, "owing").await;
    let first = owing.next_policies().await;
    // The client that has not answered is no longer waited for: both have been silent for too long.
    let groups = timeout(LIMIT, discovery.all_acked()).await.expect("a silent client holds it up");
    let states: Vec<_> = groups[0].clients.iter().map(|client| (client.address.as_str(), client.state())).collect();
    assert_eq!(states, [("owing", ClientState::Silent), ("quiet", ClientState::Ready)]);

    apply(&plane, &guarded("second")).await;
    let second = quiet.next_policies().await;
    assert_eq!(owing.next_policies().await, second, "its stream goes on as well");
    // An answer to what is no longer in force makes the client count again, and no more.
    owing.ack(&first).await;
    owing.ack(&second).await;
    quiet.ack(&second).await;
    let acked = async {
        loop {
            let groups = discovery.all_acked().await;
            if groups[0].clients.iter().all(|client| client.state() == ClientState::Ready) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, acked).await.expect("their answers count");
}
