//! The control plane, as a node cache sees it: streams to it, and whether it is there.

use std::{
    hash::{BuildHasher as _, RandomState},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    net::lookup_host,
    sync::{Notify, mpsc, watch},
    time,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming, transport::Endpoint};

use super::protocol::{Protocol, World};

/// The time limit for a stream to the control plane to open.
const TIME_TO_OPEN: Duration = Duration::from_secs(2);
/// How often a ping asks whether the control plane is still there, and how long it may take to answer.
const PING: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(5));
/// The pause before the first look for a control plane that is gone, and the longest between two.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// The number of requests that wait to be sent.
const WAITING: usize = 16;

/// The address of a control plane.
#[derive(Debug)]
pub struct Upstream {
    name: String,
    /// The number of times that it was found to be back.
    returns: watch::Sender<u64>,
    missed: Notify,
}

/// Why an address is refused.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// It is not a host and a port.
    #[error("`{0}` is not an address such as `127.0.0.1:18000`")]
    NoAddress(String),
    /// It is not a loopback address.
    #[error("{0} is not a loopback address: TLS is not there yet, so only a control plane on loopback is relayed")]
    NotLoopback(String),
}

/// Why no stream was opened.
#[derive(Debug)]
pub(super) enum Missed {
    /// The control plane is not there.
    Gone(String),
    /// It is there, and refuses the stream.
    Refused(Box<Status>),
}

/// A stream to the control plane.
pub(super) struct Link<P: Protocol> {
    pub(super) requests: mpsc::Sender<P::Request>,
    pub(super) responses: Streaming<P::Response>,
}

impl Upstream {
    /// The control plane at `HOST:PORT`. A name is looked up for every stream.
    pub fn new(name: &str) -> Result<Self, UpstreamError> {
        let no_address = || UpstreamError::NoAddress(name.to_owned());
        let (host, port) = name.rsplit_once(':').ok_or_else(no_address)?;
        port.parse::<u16>().ok().filter(|port| *port > 0 && !host.is_empty()).ok_or_else(no_address)?;
        if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>()
            && !address.is_loopback()
        {
            return Err(UpstreamError::NotLoopback(name.to_owned()));
        }
        Ok(Self { name: name.to_owned(), returns: watch::Sender::new(0), missed: Notify::new() })
    }

    /// Opens a stream, or says in time why that is not possible.
    pub(super) async fn open<P: Protocol>(&self) -> Result<Link<P>, Missed> {
        let gone = |error: &dyn std::error::Error| Missed::Gone(chain(error));
        let opening = async {
            let address = self.resolve().await.map_err(Missed::Gone)?;
            let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| gone(&error))?;
            let endpoint = endpoint.http2_keep_alive_interval(PING.0).keep_alive_timeout(PING.1);
            let channel = endpoint.connect().await.map_err(|error| gone(&error))?;
            let (requests, receiver) = mpsc::channel(WAITING);
            let opened = P::open(channel, ReceiverStream::new(receiver)).await;
            let responses = opened.map_err(|status| match status.code() {
                // What the connection, a proxy or an overloaded server says; the rest is about this client.
                Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled | Code::ResourceExhausted => {
                    Missed::Gone(status.message().to_owned())
                }
                _ => Missed::Refused(Box::new(status)),
            })?;
            Ok(Link { requests, responses })
        };
        let late = |_| Missed::Gone(format!("no answer within {TIME_TO_OPEN:?}"));
        time::timeout(TIME_TO_OPEN, opening).await.map_err(late)?
    }

    async fn resolve(&self) -> Result<SocketAddr, String> {
        let found = lookup_host(&self.name).await.map_err(|error| error.to_string())?;
        let loopback = found.into_iter().find(|address| address.ip().is_loopback());
        loopback.ok_or_else(|| UpstreamError::NotLoopback(self.name.clone()).to_string())
    }

    /// A receiver that is notified when the control plane is back. Starts to look for it.
    pub(super) fn await_return(&self) -> watch::Receiver<u64> {
        let returns = self.returns.subscribe();
        self.missed.notify_one();
        returns
    }

    /// Looks for the control plane while streams wait for its return. Never ends.
    pub(super) async fn look(self: Arc<Self>) {
        loop {
            self.missed.notified().await;
            let mut pause = PAUSES.0;
            while self.returns.receiver_count() > 0 {
                time::sleep(with_jitter(pause)).await;
                match self.open::<World>().await {
                    Err(Missed::Gone(reason)) => tracing::debug!(reason, "the control plane is still gone"),
                    Ok(_) | Err(Missed::Refused(_)) => {
                        tracing::info!(control_plane = self.name, "the control plane is back");
                        self.returns.send_modify(|count| *count = count.wrapping_add(1));
                        break;
                    }
                }
                pause = pause.saturating_mul(2).min(PAUSES.1);
            }
        }
    }
}

/// Between half of a pause and the whole, so that the caches of many nodes do not come back at once.
fn with_jitter(pause: Duration) -> Duration {
    let random = RandomState::new().hash_one(()) % 1000;
    pause / 2 + pause.mul_f64(random as f64 / 2000.0)
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_loopback_addresses_only() {
        for good in ["127.0.0.1:18000", "[::1]:1", "localhost:18000", "postern:18000"] {
            assert!(Upstream::new(good).is_ok(), "{good}");
        }
        for (bad, expect) in [
            ("10.0.0.1:18000", "10.0.0.1:18000 is not a loopback address"),
            ("[2001:db8::1]:1", "is not a loopback address"),
            ("127.0.0.1", "`127.0.0.1` is not an address such as"),
            (":1", "is not an address"),
            ("localhost:0", "is not an address"),
            ("localhost:http", "is not an address"),
        ] {
            let error = Upstream::new(bad).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
    }

    #[test]
    fn pauses_differ_within_bounds() {
        let pauses: std::collections::BTreeSet<_> = (0..100).map(|_| with_jitter(Duration::from_secs(1))).collect();
        assert!(pauses.len() > 1);
        assert!(pauses.iter().all(|pause| (500..=1000).contains(&pause.as_millis())), "{pauses:?}");
    }
}
