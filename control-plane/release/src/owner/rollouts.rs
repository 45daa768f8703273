//! Asks the owner to look at the rollout when the fleet has changed. The look itself is the owner's.

use std::time::{Duration, Instant, SystemTime};

use tokio::{sync::watch, time};

use super::{Commands, Readings};

/// After a look at the rollout there is a pause of this many times its duration: while thousands of nodes answer, a
/// look is costly and finds little new.
const PAUSE_FOR_LOOK: u32 = 19;
/// The longest such pause, since a node may have refused meanwhile.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// The interval of looks without a change of the fleet, because the pause of a canary step may have ended.
const PAUSES: Duration = Duration::from_millis(200);
/// The interval of looks after a rollback, because the nodes that refused may have left.
const DEPARTURES: Duration = Duration::from_secs(1);

/// Asks for a look after each of `changes` (of the fleet) and at intervals, so that rollouts are promoted, completed
/// and rolled back. Returns when the owner has ended.
pub async fn follow_rollouts(commands: Commands, mut readings: Readings, mut changes: watch::Receiver<u64>) {
    loop {
        changes.mark_unchanged();
        let reading = readings.latest();
        let begin = Instant::now();
        if commands.look().await.is_err() {
            return;
        }
        let pause = begin.elapsed().saturating_mul(PAUSE_FOR_LOOK).min(LONGEST_PAUSE);
        let (under_way, may_start_again) = {
            let latest = readings.latest();
            (latest.releases().is_under_way(), latest.releases().may_start_again(SystemTime::now()))
        };
        tokio::select! {
            () = readings.moved_since(&reading) => {}
            _ = changes.changed(), if under_way => time::sleep(pause).await,
            () = time::sleep(PAUSES), if under_way => {}
            () = time::sleep(DEPARTURES), if may_start_again => {}
        }
    }
}
