//! SIGHUP: whatever was read from files is read again. It ends nothing.

use std::{future, io};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

/// Requests to read files again. Each clone sees every request; several that come at once are one.
#[derive(Debug, Clone)]
pub struct Reloads(Option<watch::Receiver<()>>);

impl Reloads {
    /// Requests by SIGHUP, from now on. Must be called in a runtime.
    pub fn on_hangup() -> io::Result<Self> {
        let mut hangups = signal(SignalKind::hangup())?;
        let (sender, requests) = watch::channel(());
        tokio::spawn(async move {
            while hangups.recv().await.is_some() {
                tracing::info!("SIGHUP: files are read again");
                sender.send_replace(());
            }
        });
        Ok(Self(Some(requests)))
    }

    /// No requests, ever.
    pub fn never() -> Self {
        Self(None)
    }

    /// Waits for the next request.
    pub async fn next(&mut self) {
        if let Some(requests) = &mut self.0
            && requests.changed().await.is_ok()
        {
            return;
        }
        future::pending().await
    }
}
