//! Limits on HTTP connections, in total and for one address. At the limit, the connection that has been idle for
//! longest is closed, so that incomplete requests never keep complete ones out.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{sync::Notify, time::Instant};

/// The open connections.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    most_of_one: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    lines: BTreeMap<u64, Arc<ConnectionState>>,
    count: u64,
}

/// The state of one connection, as others see it.
#[derive(Debug)]
pub(super) struct ConnectionState {
    client: IpAddr,
    /// Whether a request is being answered. If not, the next field says since when it is idle.
    busy: AtomicBool,
    since: Mutex<Instant>,
    cut: Notify,
}

impl ConnectionState {
    /// Records that a complete request has come, and is being answered.
    pub(super) fn busy(&self) {
        self.busy.store(true, Ordering::Relaxed);
    }

    /// Records that the answer has ended.
    pub(super) fn idle(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.busy.store(false, Ordering::Relaxed);
    }

    /// Waits until the connection must be closed to make room.
    pub(super) async fn is_cut(&self) {
        self.cut.notified().await;
    }

    /// The client's address.
    pub(super) fn client(&self) -> IpAddr {
        self.client
    }

    fn waiting_since(&self) -> Option<Instant> {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        (!self.busy.load(Ordering::Relaxed)).then_some(since)
    }
}

/// A slot among the open connections. Dropping it frees the slot.
#[derive(Debug)]
pub(super) struct Slot {
    connections: Arc<Connections>,
    number: u64,
    line: Arc<ConnectionState>,
}

impl Slot {
    pub(super) fn line(&self) -> &Arc<ConnectionState> {
        &self.line
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.open().lines.remove(&self.number);
    }
}

impl Connections {
    /// No connections yet, and at most this many.
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(4);
        Self { most, most_of_one: most - most / 4, open: Mutex::default() }
    }

    /// Grants a slot to a client's connection; an idle one may be closed for it. `None` if all connections are busy.
    pub(super) fn admit(self: &Arc<Self>, client: IpAddr) -> Option<Slot> {
        let mut open = self.open();
        let of_one = open.lines.values().filter(|line| line.client == client).count();
        let has_room = if of_one >= self.most_of_one {
            open.cut_oldest(|line| line.client == client)
        } else {
            open.lines.len() < self.most || open.cut_oldest(|_| true)
        };
        if !has_room {
            return None;
        }
        open.count = open.count.wrapping_add(1);
        let (busy, since, cut) = (AtomicBool::new(false), Mutex::new(Instant::now()), Notify::new());
        let (number, line) = (open.count, Arc::new(ConnectionState { client, busy, since, cut }));
        open.lines.insert(number, Arc::clone(&line));
        Some(Slot { connections: Arc::clone(self), number, line })
    }

    /// Closes one idle connection, if there is any.
    pub(super) fn make_room(&self) {
        self.open().cut_oldest(|_| true);
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // A poisoned lock is ignored: every statement leaves the value consistent.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Closes the connection that has been idle for longest, of those for which `may_end` holds. Returns whether there
    /// was one.
    fn cut_oldest(&mut self, may_end: impl Fn(&ConnectionState) -> bool) -> bool {
        let waiting = self.lines.iter().filter(|(_, line)| may_end(line));
        let waiting = waiting.filter_map(|(number, line)| Some((line.waiting_since()?, *number)));
        let Some(line) = waiting.min().and_then(|(_, number)| self.lines.remove(&number)) else { return false };
        line.cut.notify_one();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> IpAddr {
        [127, 0, 0, last].into()
    }

    fn open(connections: &Connections) -> Vec<u64> {
        connections.open().lines.keys().copied().collect()
    }

    #[test]
    fn the_one_that_waited_for_longest_gives_way() {
        let connections = Arc::new(Connections::new(4));
        let places: Vec<_> = [1, 2, 3, 4].map(|last| connections.admit(client(last)).unwrap()).into();
        places[0].line().busy();
        let fifth = connections.admit(client(5)).unwrap();
        assert_eq!(open(&connections), [1, 3, 4, 5], "the first is being answered");
        places[2].line().busy();
        places[3].line().busy();
        fifth.line().busy();
        assert!(connections.admit(client(6)).is_none(), "all are being answered");
        places[0].line().idle();
        let _sixth = connections.admit(client(6)).unwrap();
        assert_eq!(open(&connections), [3, 4, 5, 6]);
        drop((places, fifth));
        assert_eq!(open(&connections), [6]);
    }

    #[test]
    fn one_client_leaves_places_to_others() {
        let connections = Arc::new(Connections::new(8));
        let places: Vec<_> = (0..6).map(|_| connections.admit(client(1)).unwrap()).collect();
        places.iter().for_each(|place| place.line().busy());
        assert!(connections.admit(client(1)).is_none());
        assert!(connections.admit(client(2)).is_some());
    }
}
