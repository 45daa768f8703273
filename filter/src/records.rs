//! Where records for auditors go: to Envoy's log, and to collectors. A record that cannot be written is lost, and nothing
//! else: no request fails for it, or waits.

use postern_engine::{Collector, Record};

use crate::host::{self, HostError};

/// How long a collector may take, in milliseconds. Envoy bounds how many calls are under way (its circuit breakers).
const TIMEOUT: u32 = 5_000;

/// Writes records.
pub(crate) fn write(records: &[Record]) {
    for record in records {
        if record.log
            && let Err(error) = host::log_line(&record.line)
        {
            log::debug!("a record is lost: {error}");
        }
        if let Some(collector) = &record.collector
            && let Err(error) = post(collector, &record.line)
        {
            log::debug!("a record for {} is lost: {error}", collector.service);
        }
    }
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
