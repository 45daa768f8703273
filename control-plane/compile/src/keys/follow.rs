//! Keeps the published key sets of a running control plane up to date.

use std::{
    future::pending,
    hash::{BuildHasher, Hasher, RandomState},
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    time::Duration,
};

use tokio::{task::JoinSet, time};

use super::{Fetch, LiveSources, client::Client, source::Fetched};

/// Fetches what is due, for ever, and calls `changed` for each set that is another one than before.
pub async fn follow(sources: Arc<LiveSources>, client: Client, changed: impl Fn()) {
    let mut under_way: JoinSet<(Fetch, Fetched)> = JoinSet::new();
    loop {
        let (due, next) = sources.start_due();
        for fetch in due {
            let client = client.clone();
            under_way.spawn_blocking(move || {
                // Whatever happens there, the set must not be under way for ever.
                let answer = panic::catch_unwind(AssertUnwindSafe(|| client.fetch(&fetch)));
                (fetch, answer.unwrap_or_else(|_| Fetched::Failed("the fetch panicked".to_owned())))
            });
        }
        tokio::select! {
            () = wait(next) => {}
            () = sources.wanted() => {}
            Some(Ok((fetch, answer))) = under_way.join_next() => {
                if finish(&sources, &fetch, answer) {
                    changed();
                }
            }
        }
    }
}

async fn wait(time: Option<Duration>) {
    match time {
        Some(time) => time::sleep(time).await,
        None => pending().await,
    }
}

/// Says whether the keys have changed.
fn finish(sources: &LiveSources, fetch: &Fetch, answer: Fetched) -> bool {
    if let Fetched::Failed(message) = &answer {
        tracing::warn!(uri = %fetch.uri, "keys could not be fetched: {message}");
    }
    let changed = sources.finish(&fetch.uri, answer, chance());
    if changed {
        tracing::info!(uri = %fetch.uri, "keys have changed");
    }
    changed
}

/// A number from 0 to 1. The standard library seeds its hash maps by chance.
fn chance() -> f64 {
    let bits = RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(bits >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}
