//! The operation that streams the journal as server-sent events, so that clients need not poll.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Extension,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::sse::{Event as Sent, KeepAlive, Sse},
};
use postern_release::journal::{Event, Happening, Journal, Noted};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::{extract::Asked, operation::Operation, problem::Problem};
use crate::control_plane::ControlPlane;

/// The maximum number of followers, in total; the line below is the limit for one address.
const MOST_FOLLOWERS: usize = 64;
const MOST_OF_ONE: usize = 32;
/// The longest time between two messages to a follower.
const KEEPALIVE: Duration = Duration::from_secs(15);

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::get(
            "/api/v1/events",
            ("followEvents", "Follow what happens: revisions, rollouts, and what nodes say."),
            follow,
        )
        .query::<Following>()
        .header(
            "Last-Event-ID",
            "The id of the last event that was seen: goes on after it, or says that some were missed.",
        )
        .text("text/event-stream", "Server-sent events. The data of each is JSON, its name is in `event`.")
        .problem(400, "A parameter cannot be read.")
        .problem(429, "Too many follow already from this address.")
        .problem(503, "Too many follow already."),
    ]
}

/// Where to begin, and when to end.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Following {
    /// How many earlier events to begin with; `Last-Event-ID` counts before it.
    #[serde(default)]
    last: u64,
    /// Whether to go on with what happens from now on; default: yes.
    #[serde(default = "yes")]
    follow: bool,
}

fn yes() -> bool {
    true
}

type Events = Sse<axum::response::sse::KeepAliveStream<ReceiverStream<Result<Sent, Infallible>>>>;

async fn follow(
    State(plane): State<Arc<ControlPlane>>,
    Extension(seats): Extension<Arc<Seats>>,
    client: Option<Extension<Client>>,
    headers: HeaderMap,
    Asked(Following { last, follow }): Asked<Following>,
) -> Result<Events, Problem> {
    let client = client.map_or(Client(Ipv4Addr::UNSPECIFIED.into()), |Extension(client)| client);
    let seat = Seats::take(&seats, client)?;
    let journal = Arc::clone(plane.journal());
    let (sender, receiver) = mpsc::channel(64);
    let seen = headers.get("last-event-id").map(|id| id.to_str().ok().and_then(|id| journal.place(id)));
    tokio::spawn(async move {
        // A follower that disconnects is not an error.
        let _ended = feed(&journal, &sender, (seen, last), follow).await;
        drop(seat);
    });
    Ok(Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::new().interval(KEEPALIVE)))
}

type Follower = mpsc::Sender<Result<Sent, Infallible>>;

/// Sends the events after a position, and then new ones as they happen. `seen` is the last event that the follower has
/// seen: `Some(None)` if that was in another process.
async fn feed(
    journal: &Journal,
    follower: &Follower,
    (seen, last): (Option<Option<u64>>, u64),
    follow: bool,
) -> Result<(), mpsc::error::SendError<Result<Sent, Infallible>>> {
    let mut latest = journal.latest();
    let now = *latest.borrow_and_update();
    let mut place = match seen {
        Some(Some(place)) => place,
        Some(None) => {
            follower.send(Ok(missed(None))).await?;
            0
        }
        None => now.saturating_sub(last),
    };
    // Events from before a new follower connected do not count as missed.
    let mut told = seen.flatten().is_none();
    loop {
        let (lost, events) = journal.after(place);
        if lost > 0 && !told {
            follower.send(Ok(missed(Some(lost)))).await?;
        }
        told = false;
        for event in &events {
            place = event.place;
            follower.send(Ok(message(journal, event))).await?;
        }
        if !follow {
            return Ok(());
        }
        tokio::select! {
            changed = latest.changed() => if changed.is_err() { return Ok(()) },
            () = follower.closed() => return Ok(()),
        }
        latest.borrow_and_update();
    }
}

fn message(journal: &Journal, event: &Noted) -> Sent {
    Sent::default().id(journal.id(event.place)).event(event.name).data(&event.json)
}

/// The event has no id, so that the follower's last id stays the one that it has seen.
fn missed(count: Option<u64>) -> Sent {
    let what = Happening::Missed { count };
    let event = Event { at: postern_release::store::milliseconds(std::time::SystemTime::now()), what };
    Sent::default().event(event.what.name()).data(event.to_json())
}

/// The caller's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Client(pub(crate) IpAddr);

/// Counts followers, and grants seats to them.
#[derive(Debug, Default)]
pub(super) struct Seats {
    taken: Mutex<BTreeMap<Client, usize>>,
}

/// A seat of a follower. Dropping it frees the seat.
#[derive(Debug)]
struct Seat {
    seats: Arc<Seats>,
    client: Client,
}

impl Seats {
    fn take(seats: &Arc<Self>, client: Client) -> Result<Seat, Problem> {
        let mut taken = seats.taken();
        if taken.values().sum::<usize>() >= MOST_FOLLOWERS {
            let detail = format!("{MOST_FOLLOWERS} follow events already: try again when one has left");
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too many follow", detail));
        }
        let own = taken.entry(client).or_default();
        if *own >= MOST_OF_ONE {
            let detail = format!("{MOST_OF_ONE} follow events already from {}: end one of them first", client.0);
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too many follow", detail));
        }
        *own += 1;
        drop(taken);
        Ok(Seat { seats: Arc::clone(seats), client })
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<Client, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        if let Some(own) = taken.get_mut(&self.client) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                taken.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;

    use super::*;

    fn client(last: u8) -> Client {
        Client([127, 0, 0, last].into())
    }

    #[test]
    fn one_client_leaves_places_to_others() {
        let seats = Arc::<Seats>::default();
        let status = |taken: Result<Seat, Problem>| taken.map_err(|problem| problem.into_response().status());
        let of_one: Vec<_> = (0..MOST_OF_ONE).map(|_| Seats::take(&seats, client(1)).unwrap()).collect();
        assert_eq!(status(Seats::take(&seats, client(1))).unwrap_err(), StatusCode::TOO_MANY_REQUESTS);
        let of_others: Vec<_> = (0..MOST_OF_ONE).map(|_| Seats::take(&seats, client(2)).unwrap()).collect();
        assert_eq!(status(Seats::take(&seats, client(3))).unwrap_err(), StatusCode::SERVICE_UNAVAILABLE);
        drop(of_one);
        assert!(Seats::take(&seats, client(3)).is_ok());
        drop(of_others);
        assert!(seats.taken().is_empty());
    }
}
