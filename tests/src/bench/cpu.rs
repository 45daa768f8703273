//! The CPU time of a process, as Linux counts it: in nanoseconds, over all threads.

use std::{fs, io, path::Path, time::Duration};

use anyhow::{Context, Result};

/// The time that all threads of a process have spent on a CPU so far.
pub(super) fn spent(process: u32) -> Result<Duration> {
    let tasks = format!("/proc/{process}/task");
    let mut total = Duration::ZERO;
    for task in fs::read_dir(&tasks).with_context(|| format!("cannot list `{tasks}`"))? {
        total += spent_by_thread(&task?.path().join("schedstat"))?;
    }
    Ok(total)
}

/// The time of one thread. A thread that ended since it was listed counts as 0; it had little time.
fn spent_by_thread(path: &Path) -> Result<Duration> {
    let text = match fs::read_to_string(path) {
        Err(error) if has_ended(&error) => return Ok(Duration::ZERO),
        read => read.with_context(|| format!("cannot read `{}`", path.display()))?,
    };
    let nanoseconds = text.split_whitespace().next().and_then(|first| first.parse().ok());
    let nanoseconds = nanoseconds.with_context(|| format!("`{}` has no time: `{text}`", path.display()))?;
    Ok(Duration::from_nanos(nanoseconds))
}

/// Before the file is opened, a thread that ended is "not found"; after that, "no such process".
fn has_ended(error: &io::Error) -> bool {
    const NO_SUCH_PROCESS: i32 = 3;
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(NO_SUCH_PROCESS)
}

#[cfg(test)]
mod tests {
    use std::{hint, time::Instant};

    use super::*;

    #[test]
    fn counts_on_while_threads_come_and_go() {
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    std::thread::spawn(|| ()).join().unwrap();
                }
            });
            let counted: Result<Vec<_>> = (0..2_000).map(|_| spent(std::process::id())).collect();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            counted.unwrap();
        });
    }

    #[test]
    fn counts_the_time_of_all_threads() {
        let work = || {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(60) {
                hint::spin_loop();
            }
        };
        let before = spent(std::process::id()).unwrap();
        let thread = std::thread::spawn(move || {
            work();
            spent(std::process::id()).unwrap()
        });
        work();
        let during = thread.join().unwrap();
        assert!(during > before, "{before:?} {during:?}");
    }
}
