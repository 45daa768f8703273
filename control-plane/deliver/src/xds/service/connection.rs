//! A client's connection, and the handle that closes it from outside: streams of a client that does not read are not
//! polled, so that they could not end themselves.

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tonic::transport::server::Connected;

/// A client's connection.
#[derive(Debug)]
pub struct Connection<S> {
    socket: S,
    line: Arc<ConnectionHandle>,
}

/// The handle that closes a connection.
#[derive(Debug)]
pub struct ConnectionHandle {
    client: IpAddr,
    /// The number of its streams, and since when it has none.
    streams: Mutex<(usize, Instant)>,
    /// The number of connections without a stream, which all connections share.
    unused: Arc<AtomicUsize>,
    is_cut: AtomicBool,
    reader: Mutex<Option<Waker>>,
}

impl ConnectionHandle {
    fn new(client: IpAddr, unused: &Arc<AtomicUsize>) -> Self {
        unused.fetch_add(1, Ordering::Relaxed);
        Self {
            client,
            streams: Mutex::new((0, Instant::now())),
            unused: Arc::clone(unused),
            is_cut: AtomicBool::new(false),
            reader: Mutex::default(),
        }
    }

    /// Records that a stream was opened. It counts as open until the returned value is dropped.
    pub(crate) fn used(self: &Arc<Self>) -> Used {
        let mut streams = self.streams();
        if streams.0 == 0 {
            self.unused.fetch_sub(1, Ordering::Relaxed);
        }
        streams.0 = streams.0.saturating_add(1);
        Used(Arc::clone(self))
    }

    /// Since when it has had no stream; `None` if it has one.
    fn unused_since(&self) -> Option<Instant> {
        let (streams, since) = *self.streams();
        (streams == 0).then_some(since)
    }

    /// Closes the connection with all of its streams.
    pub(super) fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        if let Some(reader) = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take() {
            reader.wake();
        }
    }

    fn check(&self, context: &Context<'_>) -> io::Result<()> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if !reader.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            *reader = Some(context.waker().clone());
        }
        if self.is_cut.load(Ordering::Acquire) { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    fn streams(&self) -> MutexGuard<'_, (usize, Instant)> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionHandle {
    fn drop(&mut self) {
        if self.unused_since().is_some() {
            self.unused.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Counts an open stream of a connection.
#[derive(Debug)]
pub(crate) struct Used(Arc<ConnectionHandle>);

impl Drop for Used {
    fn drop(&mut self) {
        let mut streams = self.0.streams();
        *streams = (streams.0.saturating_sub(1), Instant::now());
        if streams.0 == 0 {
            self.0.unused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Connection<TcpStream> {
    pub(crate) fn tcp(tcp: TcpStream, client: IpAddr, lines: &Lines) -> Self {
        // Without it, Nagle's algorithm would delay a change until the TCP ACK of the previous one. A socket that does
        // not support it is served all the same.
        if let Err(error) = tcp.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY cannot be set");
        }
        Self::of(tcp, client, lines)
    }
}

impl<S> Connection<S> {
    pub(crate) fn of(socket: S, client: IpAddr, lines: &Lines) -> Self {
        Self { socket, line: lines.open(client) }
    }
}

/// The open connections.
#[derive(Debug)]
pub(crate) struct Lines {
    open: Mutex<Vec<Weak<ConnectionHandle>>>,
    unused: Arc<AtomicUsize>,
    most_unused: usize,
}

impl Lines {
    /// No connections yet, of which at most this many may be without a stream.
    pub(crate) fn new(most_unused: usize) -> Self {
        Self { open: Mutex::default(), unused: Arc::default(), most_unused: most_unused.max(1) }
    }

    /// Adds a connection. If too many have no stream, the one that has had none for longest is closed, preferably one
    /// of the same client.
    fn open(&self, client: IpAddr) -> Arc<ConnectionHandle> {
        if self.unused.load(Ordering::Relaxed) >= self.most_unused {
            let _gave_way = self.cut_oldest(|line| line.client == client) || self.cut_oldest(|_| true);
        }
        let line = Arc::new(ConnectionHandle::new(client, &self.unused));
        self.lock().push(Arc::downgrade(&line));
        line
    }

    /// Closes one connection without a stream, if there is any.
    pub(crate) fn make_room(&self) {
        self.cut_oldest(|_| true);
    }

    /// Closes the connection that has had no stream for longest, of those for which `may_end` holds. Returns whether
    /// there was one.
    fn cut_oldest(&self, may_end: impl Fn(&ConnectionHandle) -> bool) -> bool {
        let lines: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        let unused = lines.iter().filter(|line| !line.is_cut.load(Ordering::Relaxed) && may_end(line));
        let oldest = unused.filter_map(|line| Some((line.unused_since()?, line))).min_by_key(|(since, _)| *since);
        if let Some((_, line)) = oldest {
            tracing::debug!("a connection without a stream gave way to another");
            line.cut();
        }
        oldest.is_some()
    }

    /// Closes every connection that has had no stream for this long, and forgets those that have ended.
    pub(crate) fn cut_unused(&self, limit: Duration) {
        let mut open = self.lock();
        open.retain(|line| line.strong_count() > 0);
        if open.capacity() > 4 * open.len().max(64) {
            open.shrink_to_fit();
        }
        let is_old = |line: &Arc<ConnectionHandle>| line.unused_since().is_some_and(|since| since.elapsed() > limit);
        for line in open.iter().filter_map(Weak::upgrade).filter(is_old) {
            tracing::debug!("a connection without a stream is cut off");
            line.cut();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<ConnectionHandle>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Connected for Connection<S> {
    type ConnectInfo = Arc<ConnectionHandle>;

    fn connect_info(&self) -> Arc<ConnectionHandle> {
        Arc::clone(&self.line)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.line.check(context)?;
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
