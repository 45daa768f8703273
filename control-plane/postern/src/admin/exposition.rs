//! The metrics, in the text formats that Prometheus reads. This module says what is counted; `prometheus-client` writes
//! the text. The number of label values is bounded, whatever users and nodes do.

use std::{fmt, sync::Arc};

use axum::{
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use postern_compile::keys::KeySetState;
use postern_deliver::{discovery::ClientState, xds::service::PerType};
use postern_release::rollout::State as RolloutState;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge, histogram::Histogram},
    registry::Registry,
};

use super::{extract::on_a_thread, nodes::NodeState, operation::Operation, problem::Problem};
use crate::control_plane::ControlPlane;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::get("/metrics", ("getMetrics", "What is counted, for Prometheus."), metrics)
            .header("Accept", "`application/openmetrics-text` for the format OpenMetrics.")
            .texts(
                &[Format::Text.media_type(), Format::OpenMetrics.media_type()],
                "The metrics, in Prometheus' text format or as OpenMetrics.",
            ),
    ]
}

async fn metrics(State(plane): State<Arc<ControlPlane>>, headers: HeaderMap) -> Result<Response, Problem> {
    let format = Format::of(&headers);
    let text = on_a_thread(move || expose(plane, format).map_err(|error| Problem::internal(&error))).await?;
    Ok(([(header::CONTENT_TYPE, format.content_type())], text).into_response())
}

/// The format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// Prometheus' own text format.
    Text,
    /// OpenMetrics, which Prometheus prefers. It names a counter's family without `_total`, and marks the end.
    OpenMetrics,
}

impl Format {
    /// OpenMetrics if the header `Accept` names it, as Prometheus' does, else text.
    fn of(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(header::ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
        let mut types = accepted.flat_map(|value| value.split(',')).map(|item| item.split(';').next().unwrap_or(item));
        let named = types.any(|item| item.trim().eq_ignore_ascii_case(Self::OpenMetrics.media_type()));
        if named { Self::OpenMetrics } else { Self::Text }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The content type without its parameters.
    const fn media_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain",
            Self::OpenMetrics => "application/openmetrics-text",
        }
    }
}

/// The metrics of a control plane, in Prometheus' text format.
pub(super) fn text(plane: Arc<ControlPlane>) -> Result<String, fmt::Error> {
    expose(plane, Format::Text)
}

fn expose(plane: Arc<ControlPlane>, format: Format) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("postern");
    registry.register_collector(Box::new(Scrape { plane, format }));
    let mut text = String::new();
    match format {
        Format::Text => text::encode_registry(&mut text, &registry)?,
        Format::OpenMetrics => text::encode(&mut text, &registry)?,
    }
    Ok(text)
}

/// One look at everything that is counted.
#[derive(Debug)]
struct Scrape {
    plane: Arc<ControlPlane>,
    format: Format,
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (plane, text) = (&*self.plane, &mut Exposition { encoder, format: self.format });
        text.gauge("build_info", "The program that answers.", [labelled("version", env!("CARGO_PKG_VERSION"), 1)])?;
        text.gauge("uptime_seconds", "How long it runs.", alone(plane.uptime().as_secs()))?;
        fleet(plane, text)?;
        clients(plane, text)?;
        key_sets(plane, text)?;
        certificates(plane, text)?;
        revisions(plane, text)?;
        requests(plane, text)
    }
}

/// The labels of a sample.
type Labels = Vec<(&'static str, String)>;

/// The text under construction.
struct Exposition<'e> {
    encoder: DescriptorEncoder<'e>,
    format: Format,
}

impl Exposition<'_> {
    /// Writes a counter by its name without `_total`.
    fn counter(&mut self, name: &str, about: &str, samples: impl IntoIterator<Item = (Labels, u64)>) -> fmt::Result {
        match self.format {
            Format::OpenMetrics => {
                let encoder = self.encoder.encode_descriptor(name, about, None, MetricType::Counter)?;
                encode(encoder, samples, ConstCounter::new)
            }
            // The text format describes the name with `_total`. As a gauge, the library adds no suffix of its own.
            Format::Text => {
                let name = format!("{name}_total");
                let encoder = self.encoder.encode_descriptor(&name, about, None, MetricType::Counter)?;
                encode(encoder, samples, ConstGauge::new)
            }
        }
    }

    fn gauge(&mut self, name: &str, about: &str, samples: impl IntoIterator<Item = (Labels, u64)>) -> fmt::Result {
        let encoder = self.encoder.encode_descriptor(name, about, None, MetricType::Gauge)?;
        encode(encoder, samples, ConstGauge::new)
    }

    fn histogram(&mut self, name: &str, about: &str, histogram: &Histogram) -> fmt::Result {
        histogram.encode(self.encoder.encode_descriptor(name, about, None, MetricType::Histogram)?)
    }

    fn per_type(&mut self, name: &str, about: &str, counters: &PerType) -> fmt::Result {
        self.counter(name, about, counters.iter().map(|(kind, count)| labelled("type", kind.to_string(), count)))
    }
}

fn encode<M: EncodeMetric>(
    mut encoder: MetricEncoder<'_>,
    samples: impl IntoIterator<Item = (Labels, u64)>,
    metric: impl Fn(u64) -> M,
) -> fmt::Result {
    for (labels, number) in samples {
        if labels.is_empty() {
            // A family without labels would be written with empty braces.
            return metric(number).encode(encoder);
        }
        metric(number).encode(encoder.encode_family(&labels)?)?;
    }
    Ok(())
}

fn alone(number: u64) -> [(Labels, u64); 1] {
    [(Labels::new(), number)]
}

fn labelled(label: &'static str, value: impl Into<String>, number: u64) -> (Labels, u64) {
    (vec![(label, value.into())], number)
}

fn fleet(plane: &ControlPlane, text: &mut Exposition<'_>) -> fmt::Result {
    let (reports, streams) = plane.fleet().ask(|fleet| (fleet.report(), fleet.open_streams()));
    let count = |state: NodeState| reports.iter().filter(|report| NodeState::of(report) == state).count();
    let states = NodeState::ALL.map(|state| {
        let name = format!("{state:?}").to_ascii_lowercase();
        labelled("state", name, u64::try_from(count(state)).unwrap_or(u64::MAX))
    });
    text.gauge("nodes", "The nodes, by where they are.", states)?;
    text.gauge("xds_streams", "The xDS streams that are open.", alone(u64::try_from(streams).unwrap_or(u64::MAX)))?;
    let groups = plane.publications().latest().map_or(0, |publication| publication.groups());
    let groups = u64::try_from(groups).unwrap_or(u64::MAX);
    text.gauge("node_groups", "The groups of nodes that are kept compiled.", alone(groups))?;
    let traffic = plane.traffic();
    text.per_type("xds_pushes", "What was sent to nodes.", &traffic.pushes)?;
    text.per_type("xds_acks", "What nodes accepted.", &traffic.acks)?;
    text.per_type("xds_nacks", "What nodes refused.", &traffic.nacks)
}

fn clients(plane: &ControlPlane, text: &mut Exposition<'_>) -> fmt::Result {
    let clients = plane.clients();
    let reports = clients.latest_report();
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let states = ClientState::ALL.map(|state| {
        let in_it = reports.iter().flat_map(|group| &group.clients).filter(|client| client.state() == state).count();
        labelled("state", format!("{state:?}").to_ascii_lowercase(), number(in_it))
    });
    text.gauge("discovery_clients", "The clients of policy discovery, by where they are.", states)?;
    let groups = [true, false].map(|acked| {
        let groups = reports.iter().filter(|group| group.all_acked == acked).count();
        labelled("all_acked", acked.to_string(), number(groups))
    });
    let about = "The versions that clients of policy discovery are to have, by whether all have answered.";
    text.gauge("discovery_groups", about, groups)?;
    text.counter("discovery_pushes", "Policies that were sent to clients.", alone(clients.pushes.get()))?;
    text.counter("discovery_acks", "Policies that clients accepted.", alone(clients.acks.get()))?;
    text.counter("discovery_nacks", "Policies that clients refused.", alone(clients.nacks.get()))
}

fn key_sets(plane: &ControlPlane, text: &mut Exposition<'_>) -> fmt::Result {
    let reports = plane.keys().report();
    let keys = reports
        .iter()
        .map(|report| labelled("uri", report.uri.as_str(), u64::try_from(report.keys).unwrap_or(u64::MAX)));
    text.gauge("key_set_keys", "The usable keys of a published key set.", keys)?;
    let ages = reports.iter().filter_map(|report| Some(labelled("uri", report.uri.as_str(), report.age()?)));
    text.gauge("key_set_age_seconds", "How long ago a key set was last fetched.", ages)?;
    let states = reports.iter().flat_map(|report| {
        KeySetState::ALL.map(|state| {
            let name = format!("{state:?}").to_ascii_lowercase();
            (vec![("uri", report.uri.to_string()), ("state", name)], u64::from(report.state == state))
        })
    });
    text.gauge("key_set_state", "1 for the state that a key set is in.", states)
}

/// Certificates are as many as users wrote, so the labels are bounded.
fn certificates(plane: &ControlPlane, text: &mut Exposition<'_>) -> fmt::Result {
    let in_force = plane.in_force();
    let expiries = in_force.certificates().iter().map(|expiry| {
        let labels = vec![
            ("mesh", expiry.mesh.clone()),
            ("resource", expiry.at.resource.clone().unwrap_or_default().replace(" `", "/").replace('`', "")),
            ("field", expiry.at.field.clone().unwrap_or_default()),
        ];
        (labels, u64::try_from(expiry.validity.not_after).unwrap_or_default())
    });
    let about = "When a certificate expires, in seconds since 1970.";
    text.gauge("certificate_not_after_timestamp_seconds", about, expiries)
}

fn revisions(plane: &ControlPlane, text: &mut Exposition<'_>) -> fmt::Result {
    let report = plane.in_force().rollout_report();
    let (candidate, last_good) = report.as_ref().map_or((0, None), |report| (report.candidate, report.last_good));
    text.gauge("revision", "The revision that spreads, or spread last.", alone(candidate))?;
    text.gauge("revision_last_good", "The last good revision; 0 if there is none.", alone(last_good.unwrap_or(0)))?;
    if let Ok(kept) = plane.store().revisions() {
        let kept = u64::try_from(kept.len()).unwrap_or(u64::MAX);
        text.gauge("revisions_kept", "The revisions that can be gone back to.", alone(kept))?;
    }
    let state = report.as_ref().map(|report| &report.state);
    let states = [
        ("progressing", matches!(state, Some(RolloutState::Progressing))),
        ("paused", matches!(state, Some(RolloutState::Paused))),
        ("completed", matches!(state, Some(RolloutState::Completed))),
        ("rolled_back", matches!(state, Some(RolloutState::RolledBack { .. }))),
        ("aborted", matches!(state, Some(RolloutState::Aborted))),
    ];
    let states = states.map(|(name, is)| labelled("state", name, u64::from(is)));
    text.gauge("rollout_state", "1 for the state that the rollout is in.", states)?;
    let rollouts = &plane.counts().rollouts;
    let outcomes = [
        ("started", &rollouts.started),
        ("completed", &rollouts.completed),
        ("rolled_back", &rollouts.rolled_back),
        ("aborted", &rollouts.aborted),
    ];
    let outcomes = outcomes.map(|(name, counter)| labelled("outcome", name, counter.get()));
    text.counter("rollouts", "Rollouts, by what came of them.", outcomes)?;
    let proposals = &plane.counts().proposals;
    let results = [
        ("created", &proposals.created),
        ("unchanged", &proposals.unchanged),
        ("invalid", &proposals.invalid),
        ("conflict", &proposals.conflict),
        ("failed", &proposals.failed),
    ];
    let results = results.map(|(name, counter)| labelled("result", name, counter.get()));
    text.counter("applies", "Changes that were proposed, by what came of them.", results)?;
    text.histogram(
        "apply_seconds",
        "How long a change took to be taken in: compiled, gated and stored.",
        &plane.counts().applies,
    )?;
    if let Some(times) = plane.code().gate().times() {
        text.histogram("gate_seconds", "How long a plan took to load at the gate.", times)?;
    }
    let refused = u64::from(plane.in_force().is_directory_refused());
    text.gauge("change_refused", "1 while the latest change of the directory is refused.", alone(refused))
}

fn requests(plane: &ControlPlane, text: &mut Exposition<'_>) -> fmt::Result {
    let answered = plane.requests().all().into_iter().map(|((operation, status), count)| {
        (vec![("operation", operation.to_owned()), ("code", status.to_string())], count)
    });
    text.counter("http_requests", "Requests to this API, by operation and status.", answered)?;
    text.counter("events", "Happenings that were noted.", alone(plane.journal().count()))
}
