//! A collector that is called by gRPC (`postern.audit.v1.AuditLog`): keeps the records that it gets.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use anyhow::{Context, Result};
use postern_proto::audit::v1::{
    Record, RecordRequest, RecordResponse, Verdict,
    audit_log_server::{AuditLog, AuditLogServer},
};
use prost_types::{Struct, Value as Wire, value::Kind};
use serde_json::{Map, Value, json};
use tokio::{net::TcpListener, runtime, sync::oneshot};
use tonic::{
    Request, Response, Status,
    transport::{Server, server::TcpIncoming},
};

type Records = Arc<Mutex<Vec<Record>>>;

/// A running collector. Dropping it ends it.
#[derive(Debug)]
pub struct GrpcCollector {
    address: SocketAddr,
    records: Records,
    _stop: oneshot::Sender<()>,
}

impl GrpcCollector {
    /// Starts one on a free port.
    pub fn start() -> Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime
            .block_on(TcpListener::bind(("127.0.0.1", 0)))
            .context("the collector cannot listen on a port of this machine")?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let records = Records::default();
        let service = AuditLogServer::new(Sink(Arc::clone(&records)));
        thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = Server::builder().add_service(service).serve_with_incoming(TcpIncoming::from(listener)) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Self { address, records, _stop: stop })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All records so far, each as the equivalent line of JSON.
    pub fn records(&self) -> Vec<Value> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).iter().map(as_json).collect()
    }
}

struct Sink(Records);

#[tonic::async_trait]
impl AuditLog for Sink {
    async fn record(&self, request: Request<RecordRequest>) -> Result<Response<RecordResponse>, Status> {
        let record = request.into_inner().record.ok_or_else(|| Status::invalid_argument("there is no record"))?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(record);
        Ok(Response::new(RecordResponse {}))
    }
}

/// A record as the equivalent line of JSON. Fields that are not set are absent.
pub fn as_json(record: &Record) -> Value {
    let mut line = record.fields.as_ref().map(members).unwrap_or_default();
    let verdict = match record.verdict() {
        Verdict::Unspecified => "",
        Verdict::Allow => "allow",
        Verdict::Deny => "deny",
        Verdict::Respond => "respond",
    };
    let time = record.time.as_ref().map(ToString::to_string).unwrap_or_default();
    let Record { audit, route, plan, step, reason, consumer, method, path, source, .. } = record;
    for (name, text) in [
        ("audit", audit.as_str()),
        ("time", &time),
        ("route", route),
        ("plan", plan),
        ("verdict", verdict),
        ("step", step),
        ("reason", reason),
        ("consumer", consumer),
        ("method", method),
        ("path", path),
        ("source", source),
    ] {
        if !text.is_empty() {
            line.insert(name.to_owned(), text.into());
        }
    }
    for (name, is_set, value) in [
        ("notes", !record.notes.is_empty(), json!(record.notes)),
        ("headers", !record.headers.is_empty(), json!(record.headers)),
        ("status", record.status.is_some(), json!(record.status)),
        ("onFailure", !record.on_failure.is_empty(), record.on_failure.as_str().into()),
        ("skippedSteps", !record.skipped_steps.is_empty(), json!(record.skipped_steps)),
        ("conditionFailed", record.condition_failed, true.into()),
        ("cut", record.cut, true.into()),
    ] {
        if is_set {
            line.insert(name.to_owned(), value);
        }
    }
    Value::Object(line)
}

fn members(members: &Struct) -> Map<String, Value> {
    members.fields.iter().map(|(name, value)| (name.clone(), value_json(value))).collect()
}

fn value_json(value: &Wire) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        // JSON tells integers from doubles, and the message does not.
        #[expect(clippy::cast_possible_truncation, reason = "a number without a fraction, for a test to compare")]
        Some(Kind::NumberValue(number)) if number.fract() == 0.0 => json!(*number as i64),
        Some(Kind::NumberValue(number)) => json!(number),
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::BoolValue(truth)) => (*truth).into(),
        Some(Kind::StructValue(fields)) => Value::Object(members(fields)),
        Some(Kind::ListValue(list)) => list.values.iter().map(value_json).collect(),
    }
}
