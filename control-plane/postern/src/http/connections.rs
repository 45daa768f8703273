//! The places for HTTP connections: so many in all, so many for one address. When there is none left, the connection that
//! has been without a whole request for longest gives way, so that half requests never keep a whole one out.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{sync::Notify, time::Instant};

/// The connections that are open.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    most_of_one: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    lines: BTreeMap<u64, Arc<Line>>,
    count: u64,
}

/// One connection, seen from outside.
#[derive(Debug)]
pub(super) struct Line {
    client: IpAddr,
    /// Whether a request is being answered; if not, since when none is.
    busy: AtomicBool,
    since: Mutex<Instant>,
    cut: Notify,
}

impl Line {
    /// A whole request has come: it is answered from now on.
    pub(super) fn busy(&self) {
        self.busy.store(true, Ordering::Relaxed);
    }

    /// It has been answered.
    pub(super) fn idle(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.busy.store(false, Ordering::Relaxed);
    }

    /// Waits until the connection has to give way.
    pub(super) async fn is_cut(&self) {
        self.cut.notified().await;
    }

    /// Who is at the other end.
    pub(super) fn client(&self) -> IpAddr {
        self.client
    }

    fn waiting_since(&self) -> Option<Instant> {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        (!self.busy.load(Ordering::Relaxed)).then_some(since)
    }
}

/// A slot among the open connections. Dropping it frees it.
#[derive(Debug)]
pub(super) struct Slot {
    connections: Arc<Connections>,
    number: u64,
    line: Arc<Line>,
}

impl Slot {
    pub(super) fn line(&self) -> &Arc<Line> {
        &self.line
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.open().lines.remove(&self.number);
    }
}

impl Connections {
    /// Places for so many.
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(4);
        Self { most, most_of_one: most - most / 4, open: Mutex::default() }
    }

    /// A place for a connection of a client. Another one may have to give way; `None` if all are being answered.
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
        let (number, line) = (open.count, Arc::new(Line { client, busy, since, cut }));
        open.lines.insert(number, Arc::clone(&line));
        Some(Slot { connections: Arc::clone(self), number, line })
    }

    /// Gives up one connection that is not being answered, if there is any.
    pub(super) fn make_room(&self) {
        self.open().cut_oldest(|_| true);
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Each statement leaves it whole, so that a panic elsewhere does not spoil it.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Ends the connection that has waited for longest, of those that may be ended. Says whether there was one.
    fn cut_oldest(&mut self, may_end: impl Fn(&Line) -> bool) -> bool {
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
