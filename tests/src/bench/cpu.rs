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

/// A thread may end between the listing and the reading: then it takes its time with it, as it had little.
fn spent_by_thread(path: &Path) -> Result<Duration> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Duration::ZERO),
        read => read.with_context(|| format!("cannot read `{}`", path.display()))?,
    };
    let nanoseconds = text.split_whitespace().next().and_then(|first| first.parse().ok());
    let nanoseconds = nanoseconds.with_context(|| format!("`{}` has no time: `{text}`", path.display()))?;
    Ok(Duration::from_nanos(nanoseconds))
}

#[cfg(test)]
mod tests {
    use std::{hint, time::Instant};

    use super::*;

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
