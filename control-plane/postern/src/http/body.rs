//! Bodies that report their state to the connection: requests with a time limit, and answers whose end is recorded.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use http_body::{Frame, SizeHint};
use prost::bytes::Bytes;
use tokio::time::{Instant, Sleep};

use super::connections::ConnectionState;

/// The time limit of a whole body, as a multiple of the limit between two parts.
const PARTS: u32 = 6;

/// The body of a request, with a time limit.
pub(super) struct Incoming<B> {
    body: B,
    timeout: Duration,
    end: Instant,
    timer: Pin<Box<Sleep>>,
    line: Arc<ConnectionState>,
    late: Arc<AtomicBool>,
}

impl<B: http_body::Body> Incoming<B> {
    /// Wraps a body. `late` is set if the body exceeds its time limit.
    pub(super) fn new(body: B, timeout: Duration, line: Arc<ConnectionState>, late: Arc<AtomicBool>) -> Self {
        let now = Instant::now();
        if body.is_end_stream() {
            line.busy();
        }
        let timer = Box::pin(tokio::time::sleep_until(now + timeout));
        Self { body, timeout, end: now + timeout * PARTS, timer, line, late }
    }
}

impl<B> http_body::Body for Incoming<B>
where
    B: http_body::Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Unpin,
{
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(frame) = polled {
            let next = (Instant::now() + self.timeout).min(self.end);
            self.timer.as_mut().reset(next);
            if frame.is_none() || self.body.is_end_stream() {
                self.line.busy();
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        match self.timer.as_mut().poll(context) {
            Poll::Ready(()) => {
                self.late.store(true, Ordering::Relaxed);
                Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer. When it is dropped, the connection counts as idle.
pub(super) struct Outgoing {
    body: Body,
    line: Arc<ConnectionState>,
}

impl Outgoing {
    pub(super) fn new(body: Body, line: Arc<ConnectionState>) -> Self {
        line.busy();
        Self { body, line }
    }
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.line.idle();
    }
}
