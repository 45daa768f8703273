//! Keeps the published key sets of a running control plane up to date: fetches each when it is due.

use std::{
    future::pending,
    hash::{BuildHasher, Hasher, RandomState},
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    time::Duration,
};

use tokio::{task::JoinSet, time};

use super::{Fetch, LiveSources, client::Client, source::Fetched};

/// Fetches key sets as they become due, and calls `changed` whenever the keys of one differ from before. Never returns.
pub async fn follow(sources: Arc<LiveSources>, client: Client, changed: impl Fn()) {
    let mut under_way: JoinSet<(Fetch, Fetched)> = JoinSet::new();
    loop {
        let (due, next) = sources.start_due();
        for fetch in due {
            let client = client.clone();
            under_way.spawn_blocking(move || {
                // A panic counts as a failure, so that the source does not wait for this fetch forever.
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

/// Records the result of a fetch. Returns whether the keys have changed.
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

/// A random number from 0 to 1, from the random seed of the standard library's hash maps.
fn chance() -> f64 {
    let bits = RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(bits >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}
