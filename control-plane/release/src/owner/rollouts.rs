//! Has rollouts looked at, as the fleet answers. The looking itself is the owner's.

use std::time::{Duration, Instant};

use tokio::{sync::watch, time};

use super::{Commands, Readings};

/// A rollout is looked at as soon as a node has something to say. After a look there is a pause of so many times what it
/// took: while thousands of nodes answer, a look costs much and tells little …
const PAUSE_FOR_LOOK: u32 = 19;
/// … but no longer than this, since one may have refused.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// How often a rollout is looked at because a pause may have ended.
const PAUSES: Duration = Duration::from_millis(200);

/// Looks after rollouts: has them promoted, completed and rolled back as the fleet answers. `changes` are those of the
/// fleet. Ends when the owner does.
pub async fn follow_rollouts(commands: Commands, mut readings: Readings, mut changes: watch::Receiver<u64>) {
    loop {
        changes.mark_unchanged();
        let reading = readings.latest();
        let begin = Instant::now();
        if commands.look().await.is_err() {
            return;
        }
        let pause = begin.elapsed().saturating_mul(PAUSE_FOR_LOOK).min(LONGEST_PAUSE);
        let under_way = readings.latest().releases().is_under_way();
        tokio::select! {
            () = readings.moved_since(&reading) => {}
            _ = changes.changed(), if under_way => time::sleep(pause).await,
            () = time::sleep(PAUSES), if under_way => {}
        }
    }
}
