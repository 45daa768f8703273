//! Keeps the published key sets of a running control plane up to date.

use std::{
    future::pending,
    hash::{BuildHasher, Hasher, RandomState},
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    time::Duration,
};

use tokio::{task::JoinSet, time};

use super::{Fetch, client::Client, source::Fetched};
use crate::serve::Hub;

/// Fetches what is due, for ever; a set that changes is put in force at once.
pub async fn follow(hub: Arc<Hub>, client: Client) {
    let mut under_way: JoinSet<(Fetch, Fetched)> = JoinSet::new();
    loop {
        let now = hub.uptime();
        for fetch in hub.key_sources().start_due(now) {
            let client = client.clone();
            under_way.spawn_blocking(move || {
                // Whatever happens there, the set must not be under way for ever.
                let answer = panic::catch_unwind(AssertUnwindSafe(|| client.fetch(&fetch)));
                (fetch, answer.unwrap_or_else(|_| Fetched::Failed("the fetch panicked".to_owned())))
            });
        }
        let next = hub.key_sources().next_due(now).map(|due| due.saturating_sub(now));
        tokio::select! {
            () = wait(next) => {}
            () = hub.wanted_keys_changed() => {}
            Some(Ok((fetch, answer))) = under_way.join_next() => finish(&hub, &fetch, answer),
        }
    }
}

async fn wait(time: Option<Duration>) {
    match time {
        Some(time) => time::sleep(time).await,
        None => pending().await,
    }
}

fn finish(hub: &Hub, fetch: &Fetch, answer: Fetched) {
    if let Fetched::Failed(message) = &answer {
        tracing::warn!(uri = %fetch.uri, "keys could not be fetched: {message}");
    }
    if hub.key_sources().finish(&fetch.uri, answer, hub.uptime(), chance()) {
        tracing::info!(uri = %fetch.uri, "keys have changed");
        hub.keys_changed();
    }
}

/// A number from 0 to 1. The standard library seeds its hash maps by chance.
fn chance() -> f64 {
    let bits = RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(bits >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}
