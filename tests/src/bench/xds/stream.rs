//! One stream of the load, on a connection of its own: it subscribes, accepts whatever comes, and reports when.
//!
//! It uses only `h2`. The load shares the machine with the server, and decoding hundreds of thousands of resources
//! would show in the server's times.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use anyhow::{Context, Result, bail, ensure};
use axum::http::{HeaderMap, Request, StatusCode};
use h2::{RecvStream, SendStream, client};
use prost::{Message, bytes::Bytes};
use tokio::{net::TcpStream, sync::Semaphore};
use tonic::{Code, Status};

use super::{
    case::Variant,
    message::{self, Frames, Head, Kind},
    progress::StreamsProgress,
};

/// The flow-control window: larger than a push, so that no push waits for us.
const WINDOW: u32 = 1 << 20;

/// How many streams may wait for the server's first word at a time: fewer than the system queues for it.
pub(super) const CONNECTING: usize = 256;

/// What the streams of a case have in common.
pub(super) struct Load {
    pub(super) address: SocketAddr,
    pub(super) variant: Variant,
    pub(super) connecting: Semaphore,
    pub(super) progress: StreamsProgress,
}

impl Load {
    /// Opens a stream and keeps it open as long as the runtime lives.
    pub(super) fn open(self: &Arc<Self>, number: u32) {
        let load = Arc::clone(self);
        tokio::spawn(async move {
            let reason = match load.run(number).await {
                Ok(()) => "the server closed it".to_owned(),
                Err(error) => format!("{error:#}"),
            };
            load.progress.ended(reason);
        });
    }

    async fn run(&self, number: u32) -> Result<()> {
        let (sender, response) = {
            let _permit = self.connecting.acquire().await?;
            let (sender, response) = self.connect(number).await?;
            (sender, response.await.context("no answer")?)
        };
        ensure!(response.status() == StatusCode::OK, "the server answered {}", response.status());
        check_status(response.headers())?;
        Stream { load: self, sender, has: [false; 2], change: None }.follow(response.into_body()).await
    }

    async fn connect(&self, number: u32) -> Result<(SendStream<Bytes>, client::ResponseFuture)> {
        let socket = TcpStream::connect(self.address).await.context("cannot connect")?;
        socket.set_nodelay(true)?;
        let mut builder = client::Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW).enable_push(false);
        let (client, connection) = builder.handshake(socket).await.context("no HTTP/2")?;
        tokio::spawn(connection);
        let mut client = client.ready().await?;
        let request = Request::post(format!("http://{}{}", self.address, message::path(self.variant)))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        let (response, mut sender) = client.send_request(request, false)?;
        let node = format!("bench-{number}");
        for (kind, node) in Kind::ALL.into_iter().zip([Some(node.as_str()), None]) {
            sender.send_data(message::subscription(self.variant, kind, node), false)?;
        }
        Ok((sender, response))
    }
}

struct Stream<'a> {
    load: &'a Load,
    sender: SendStream<Bytes>,
    /// Which types have come.
    has: [bool; Kind::ALL.len()],
    /// The latest change that has come.
    change: Option<usize>,
}

impl Stream<'_> {
    async fn follow(mut self, mut body: RecvStream) -> Result<()> {
        let mut frames = Frames::default();
        while let Some(piece) = body.data().await {
            let piece = piece.context("the stream broke")?;
            body.flow_control().release_capacity(piece.len())?;
            let mut outcome = Ok(());
            frames.push(&piece, |message| {
                if outcome.is_ok() {
                    outcome = self.receive(message);
                }
            });
            outcome?;
        }
        if let Some(trailers) = body.trailers().await? {
            check_status(&trailers)?;
        }
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) -> Result<()> {
        let now = Instant::now();
        let head = Head::decode(message)?;
        let Some(kind) = Kind::of(&head) else { bail!("a response of type `{}`, which nobody wanted", head.type_url) };
        self.sender.send_data(message::acceptance(self.load.variant, kind, head), false)?;
        self.note_type(kind);
        // Changes that come fast may be merged: then the last one stands for all.
        if let Some(change) = message::change(message).filter(|change| self.change < Some(*change)) {
            self.change = Some(change);
            self.load.progress.arrived(change, now);
        }
        Ok(())
    }

    fn note_type(&mut self, kind: Kind) {
        let before = self.has;
        for (has, candidate) in self.has.iter_mut().zip(Kind::ALL) {
            *has |= candidate == kind;
        }
        if before != self.has && self.has == [true; Kind::ALL.len()] {
            self.load.progress.synced();
        }
    }
}

/// What gRPC says about the end of a stream.
fn check_status(headers: &HeaderMap) -> Result<()> {
    match Status::from_header_map(headers) {
        Some(status) if status.code() != Code::Ok => {
            bail!("the server ended it with {:?}: {}", status.code(), status.message())
        }
        _ => Ok(()),
    }
}
