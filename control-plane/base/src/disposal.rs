//! Frees large values on a thread of its own. The resources of 10,000 routes take some 15 ms to free, and the last
//! reference to them may be that of an async worker.

use std::{
    sync::{
        OnceLock,
        mpsc::{self, SyncSender},
    },
    thread,
};

/// The maximum number of values that wait, so that they cannot pile up.
const MOST_WAITING: usize = 256;

/// Frees a value soon, after those that wait already. Returns at once, unless there is no thread or too many wait: then
/// it frees the value itself.
pub fn dispose(value: impl Send + 'static) {
    static DISPOSAL: OnceLock<Option<SyncSender<Box<dyn Send>>>> = OnceLock::new();
    match DISPOSAL.get_or_init(start) {
        // An error returns the value.
        Some(disposal) => drop(disposal.try_send(Box::new(value))),
        None => drop(value),
    }
}

fn start() -> Option<SyncSender<Box<dyn Send>>> {
    let (sender, values) = mpsc::sync_channel(MOST_WAITING);
    let started = thread::Builder::new().name("disposal".to_owned()).spawn(move || values.into_iter().for_each(drop));
    started.inspect_err(|error| tracing::warn!("large values are freed where they are dropped: {error}")).ok()?;
    Some(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tells when it is freed, and waits for leave.
    struct Slow(mpsc::Sender<thread::ThreadId>, mpsc::Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
            self.1.recv().unwrap();
        }
    }

    #[test]
    fn frees_on_another_thread_and_never_waits() {
        let (freed, told) = mpsc::channel();
        let value = || {
            let (leave, left) = mpsc::channel();
            (Slow(freed.clone(), left), leave)
        };
        let (first, leave) = value();
        dispose(first);
        assert_ne!(told.recv().unwrap(), thread::current().id());
        // The thread is busy, and the queue becomes full.
        (0..MOST_WAITING).for_each(|_| dispose(()));
        let (second, leave_second) = value();
        leave_second.send(()).unwrap();
        dispose(second);
        assert_eq!(told.recv().unwrap(), thread::current().id());
        leave.send(()).unwrap();
    }
}
