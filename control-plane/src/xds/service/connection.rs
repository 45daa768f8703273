//! A client's connection, and the line by which it can be cut off from outside: a client that does not read leaves its
//! streams nothing to do, so that none of them could end itself.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tonic::transport::server::Connected;

/// A connection.
#[derive(Debug)]
pub struct Connection {
    tcp: TcpStream,
    line: Arc<Line>,
}

/// What cuts a connection off.
#[derive(Debug, Default)]
pub struct Line {
    is_cut: AtomicBool,
    reader: Mutex<Option<Waker>>,
}

impl Line {
    /// Ends the connection with all of its streams.
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
}

impl Connection {
    pub(super) fn new(tcp: TcpStream) -> Self {
        // Without it a change would wait for the ACK of the one before, in the network's sense. It is a matter of speed
        // only: a socket that cannot do it serves all the same.
        if let Err(error) = tcp.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY cannot be set");
        }
        Self { tcp, line: Arc::default() }
    }
}

impl Connected for Connection {
    type ConnectInfo = Arc<Line>;

    fn connect_info(&self) -> Arc<Line> {
        Arc::clone(&self.line)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.line.check(context)?;
        Pin::new(&mut self.tcp).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}
