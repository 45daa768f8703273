//! Clients that break limits: each gets a clear status, and no other client is affected.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use axum::http::{Request, Response};
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use postern::serve::Sockets;
use postern_compile::snapshot::ResourceType::{Endpoints, RouteConfiguration, Secret};
use postern_deliver::xds::Limits;
use tonic::{Code, Status, body::Body, client::GrpcService, transport::Channel};

use crate::server::{Client, Server, answer_to, first, soon, until};

#[tokio::test]
async fn a_stream_too_many_is_refused_and_there_is_room_again_once_another_ends() {
    let server = Server::start(Limits { streams: 2, ..Limits::default() }).await;
    server.publish(1, 10).await;
    let mut kept = server.stream("a").await;
    kept.subscribe().await;
    kept.next().await.unwrap();
    let ended = server.stream("b").await;
    ended.subscribe().await;
    until("two streams", || server.plane.fleet().report().len() == 2).await;
    let refused = Client::open(server.channel().await, "c").await.err().unwrap();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("2 xDS streams"), "{refused}");
    drop(ended);
    until("the end of a stream", || server.plane.fleet().report().iter().any(|node| !node.connected)).await;
    // The connection that was kept is not affected.
    server.publish(2, 10).await;
    kept.next().await.unwrap();
    let mut next = soon("room", async {
        loop {
            match Client::open(server.channel().await, "c").await {
                Ok(client) => return client,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    })
    .await;
    next.subscribe().await;
    next.next().await.unwrap();
}

#[tokio::test]
async fn a_request_that_is_too_large_ends_its_stream() {
    let server = Server::start(Limits { message_bytes: 1_000, ..Limits::default() }).await;
    server.publish(1, 10).await;
    let mut client = server.stream(&"n".repeat(2_000)).await;
    client.subscribe().await;
    let status = client.next().await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    assert!(status.message().contains("1000"), "{status}");
}

#[tokio::test]
async fn names_of_too_many_bytes_end_their_stream() {
    let server = Server::start(Limits::default()).await;
    server.publish(1, 10).await;
    let mut client = server.stream("greedy").await;
    // Within every other limit: so many names of a kilobyte, of one type after another.
    let names = |kind| {
        let resource_names = (0..3_000).map(|number| format!("{number:01000}")).collect();
        DiscoveryRequest { resource_names, ..first("greedy", kind) }
    };
    for kind in [Endpoints, RouteConfiguration] {
        client.requests.send(names(kind)).await.unwrap();
    }
    client.subscribe().await;
    client.next().await.unwrap();
    client.requests.send(names(Secret)).await.unwrap();
    let status = client.next().await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("9000000 bytes"), "{status}");
}

/// The server's answer to a stream with these headers.
async fn open_with(server: &Server, headers: &[(&str, &str)]) -> Response<Body> {
    let uri = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
    let mut request = Request::post(format!("http://{}{uri}", server.address));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut channel = server.channel().await;
    std::future::poll_fn(|context| GrpcService::<Body>::poll_ready(&mut channel, context)).await.unwrap();
    soon("an answer", GrpcService::call(&mut channel, request.body(Body::empty()).unwrap())).await.unwrap()
}

#[tokio::test]
async fn what_is_compressed_is_unimplemented_and_what_is_not_grpc_is_an_unsupported_media_type() {
    let server = Server::start(Limits::default()).await;
    server.publish(1, 10).await;
    for kind in ["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8"] {
        let answer = open_with(&server, &[("content-type", kind), ("grpc-encoding", "identity")]).await;
        assert_eq!(answer.status(), 200, "{kind}");
        assert_eq!(answer.headers().get("grpc-status"), None, "{kind}: the stream is open");
    }
    for encoding in ["gzip", "zstd", "unheard-of"] {
        let answer = open_with(&server, &[("content-type", "application/grpc"), ("grpc-encoding", encoding)]).await;
        let status = Status::from_header_map(answer.headers()).unwrap();
        assert_eq!((answer.status().as_u16(), status.code()), (200, Code::Unimplemented), "{encoding}: {status}");
        assert!(status.message().contains(encoding), "{status}");
        assert_eq!(answer.headers()["grpc-accept-encoding"], "identity");
    }
    for kind in [&[("content-type", "application/json")][..], &[("content-type", "application/grpc-web")], &[]] {
        assert_eq!(open_with(&server, kind).await.status(), 415, "{kind:?}");
    }
}

#[tokio::test]
async fn requests_without_end_end_their_stream() {
    let server = Server::start(Limits { requests_per_second: 1, ..Limits::default() }).await;
    server.publish(1, 10).await;
    let mut client = server.stream("busy").await;
    client.subscribe().await;
    let response = client.next().await.unwrap();
    let flood = async {
        // More than the burst, and far more than one a second; the stream may end before all are sent.
        for _ in 0..2_000 {
            if client.requests.send(answer_to(&response, None)).await.is_err() {
                break;
            }
        }
    };
    soon("the flood", flood).await;
    let status = client.next().await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("requests a second"), "{status}");
}

#[tokio::test]
async fn case_39_a_client_that_never_reads_is_cut_off_and_slows_nobody() {
    let limits = Limits { stall_timeout: Duration::from_secs(1), ..Limits::default() };
    let server = Server::start(limits).await;
    server.publish(1, 1_000_000).await;
    let mut reader = server.stream("reader").await;
    reader.subscribe().await;
    let response = reader.next().await.unwrap();
    reader.answer(&response, None).await;
    // Its connection lives and answers pings, but nobody takes what comes.
    let endpoint = Channel::from_shared(format!("http://{}", server.address)).unwrap();
    let endpoint = endpoint.initial_stream_window_size(10_000).initial_connection_window_size(10_000);
    let channel = soon("the connection", endpoint.connect()).await.unwrap();
    let silent = Client::open(channel, "silent").await.unwrap();
    silent.subscribe().await;
    until("the silent one", || server.plane.fleet().report().iter().any(|node| node.id == "silent")).await;
    for version in 2..30 {
        server.publish(version, 1_000_000).await;
        let response = reader.next().await.unwrap();
        assert_eq!(response.resources[0].value[0], version);
        reader.answer(&response, None).await;
    }
    let gone = || server.plane.fleet().report().iter().any(|node| node.id == "silent" && !node.connected);
    until("the silent one to be cut off", gone).await;
    server.publish(31, 10).await;
    reader.next().await.unwrap();
}

#[tokio::test]
async fn a_client_that_does_not_answer_pings_is_cut_off() {
    let second = Duration::from_secs(1);
    let limits = Limits { keepalive_interval: second, keepalive_timeout: second, ..Limits::default() };
    let server = Server::start(limits).await;
    let address = server.address;
    let listening = tokio::task::spawn_blocking(move || {
        let mut tcp = TcpStream::connect(address).unwrap();
        // HTTP/2's greeting and empty settings, and from then on not a word.
        tcp.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
        let mut heard = Vec::new();
        // However the connection ends, it ends.
        let _ = tcp.read_to_end(&mut heard);
        heard
    });
    let heard = soon("the end of the connection", listening).await.unwrap();
    // Eight bytes, a ping, no flags, of the whole connection.
    let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0];
    assert!(heard.windows(ping.len()).any(|bytes| bytes == ping), "it was asked before: {heard:?}");
}

/// The number of connections to a port that wait to be accepted, as the kernel counts them.
fn waiting(port: u16) -> usize {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let fields = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // The local address, the state (0A: it listens), and the queues.
    let listens = |fields: &Vec<&str>| fields[1].ends_with(&format!(":{port:04X}")) && fields[3] == "0A";
    let socket = fields.skip(1).find(listens).unwrap();
    usize::from_str_radix(socket[4].rsplit(':').next().unwrap(), 16).unwrap()
}

#[tokio::test]
async fn hundreds_of_clients_that_come_at_once_find_room_to_wait() {
    const CLIENTS: usize = 300;
    let any = ([127, 0, 0, 1], 0).into();
    let sockets = Sockets::bind(any, any).await.unwrap();
    for address in [sockets.xds_address().unwrap(), sockets.http_address().unwrap()] {
        // Nobody accepts them yet. What does not fit is dropped by the system, and comes again a second later.
        let clients: Vec<_> = (0..CLIENTS).map(|_| tokio::spawn(tokio::net::TcpStream::connect(address))).collect();
        until("all of them to wait", || waiting(address.port()) == CLIENTS).await;
        for client in clients {
            client.await.unwrap().unwrap();
        }
    }
}
