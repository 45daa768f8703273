//! Writes records for auditors: to Envoy's log, and to collectors. A record that cannot be written is lost; no request
//! fails or waits because of it.

use postern_engine::{Collector, GrpcRecord, Record, protobuf::put_bytes, record::GRPC_METHOD};

use crate::host::{self, HostError};

/// How long a collector may take, in milliseconds. Envoy's circuit breakers bound how many calls are in progress.
const TIMEOUT: u32 = 5_000;

/// Writes records.
pub(crate) fn write(records: &[Record]) {
    for record in records {
        if record.log
            && let Err(error) = host::log_line(host::LOG_INFO, &record.line)
        {
            log::debug!("a record is lost: {error}");
        }
        if let Some(collector) = &record.collector
            && let Err(error) = post(collector, &record.line)
        {
            log::debug!("a record for {} is lost: {error}", collector.service);
        }
        if let Some(record) = &record.grpc
            && let Err(error) = call(record)
        {
            log::debug!("a record for {} is lost: {error}", record.service);
        }
    }
}

fn call(record: &GrpcRecord) -> Result<(), HostError> {
    host::call_grpc(&grpc_service(&record.service), GRPC_METHOD, &record.message, TIMEOUT)
}

/// Envoy's `GrpcService` message with a cluster. The bare name would work too, but some names can be read as such a
/// message.
fn grpc_service(cluster: &str) -> Vec<u8> {
    let (mut envoy_grpc, mut service) = (Vec::new(), Vec::new());
    put_bytes(1, cluster.as_bytes(), &mut envoy_grpc);
    put_bytes(1, &envoy_grpc, &mut service);
    service
}

fn post(collector: &Collector, line: &str) -> Result<(), HostError> {
    let headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", &*collector.service),
        (":path", &*collector.path),
        ("content-type", "application/x-ndjson"),
    ];
    host::post(&collector.service, &headers, [line, "\n"].concat().as_bytes(), TIMEOUT)
}
