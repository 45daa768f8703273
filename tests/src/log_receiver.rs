//! A server of Envoy's gRPC access log service: keeps the entries that it gets.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use anyhow::{Context, Result};
use envoy_types::pb::envoy::{
    data::accesslog::v3::HttpAccessLogEntry,
    service::accesslog::v3::{
        StreamAccessLogsMessage, StreamAccessLogsResponse,
        access_log_service_server::{AccessLogService, AccessLogServiceServer},
        stream_access_logs_message::LogEntries,
    },
};
use tokio::{net::TcpListener, runtime, sync::oneshot};
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Server, server::TcpIncoming},
};

type Entries = Arc<Mutex<Vec<(String, HttpAccessLogEntry)>>>;

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct LogReceiver {
    address: SocketAddr,
    entries: Entries,
    _stop: oneshot::Sender<()>,
}

impl LogReceiver {
    /// Starts one on a free port.
    pub fn start() -> Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime
            .block_on(TcpListener::bind(("127.0.0.1", 0)))
            .context("the receiver cannot listen on a port of this machine")?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let entries = Entries::default();
        let service = AccessLogServiceServer::new(Sink(Arc::clone(&entries)));
        thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = Server::builder().add_service(service).serve_with_incoming(TcpIncoming::from(listener)) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Self { address, entries, _stop: stop })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All entries so far, each with the name of its log.
    pub fn entries(&self) -> Vec<(String, HttpAccessLogEntry)> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Sink(Entries);

#[tonic::async_trait]
impl AccessLogService for Sink {
    async fn stream_access_logs(
        &self,
        request: Request<Streaming<StreamAccessLogsMessage>>,
    ) -> Result<Response<StreamAccessLogsResponse>, Status> {
        let mut stream = request.into_inner();
        // Only the first message of a stream names the log.
        let mut log = String::new();
        while let Some(message) = stream.message().await? {
            if let Some(identifier) = message.identifier {
                log = identifier.log_name;
            }
            if let Some(LogEntries::HttpLogs(logs)) = message.log_entries {
                let entries = logs.log_entry.into_iter().map(|entry| (log.clone(), entry));
                self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(entries);
            }
        }
        Ok(Response::new(StreamAccessLogsResponse {}))
    }
}
