//! A child process: its output is kept, and it ends when its guard is dropped.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use anyhow::{Context, Result, bail};

use crate::wait;

/// A running child. Dropping it kills it, by its id, and waits for its end.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdout: Lines,
    stderr: Lines,
}

impl Process {
    /// Starts a command and collects what it prints.
    pub fn start(name: &str, command: &mut Command) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {name}: {command:?}"))?;
        let stdout = Lines::collect(child.stdout.take().context("no standard output")?);
        let stderr = Lines::collect(child.stderr.take().context("no standard error")?);
        Ok(Self { name: name.to_owned(), child, stdout, stderr })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed on its standard output so far.
    pub fn stdout(&self) -> Vec<String> {
        self.stdout.get()
    }

    /// How many lines it has printed on its standard output.
    pub fn stdout_len(&self) -> usize {
        self.stdout.with(Vec::len)
    }

    /// A line of its standard output, by its index; `None` if it is not there yet.
    pub fn stdout_line(&self, index: usize) -> Option<String> {
        self.stdout.with(|lines| lines.get(index).cloned())
    }

    /// What it has printed on its standard error so far.
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.get()
    }

    /// Waits until `find` finds what it looks for in a line of the standard error. An early end is an error.
    pub fn wait_for_line<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        let stderr = self.stderr.clone();
        let found = wait::until(what, || match stderr.get().iter().find_map(|line| find(line)) {
            Some(found) => Ok(Some(Ok(found))),
            None => Ok(self.exit_code()?.map(Err)),
        });
        match found?.0 {
            Ok(found) => Ok(found),
            Err(code) => bail!("{} ended with {code} before {what}:\n{}", self.name, self.stderr().join("\n")),
        }
    }

    /// The exit code or signal, if it has ended.
    pub fn exit_code(&mut self) -> Result<Option<String>> {
        Ok(self.child.try_wait()?.map(|status| status.to_string()))
    }

    /// Waits until all that an ended process printed has been read.
    pub fn wait_for_output(&self) -> Result<()> {
        let read = || Ok(self.stdout.is_complete() && self.stderr.is_complete());
        wait::until_true("the rest of the output", read).map(drop)
    }

    /// Asks it to end (SIGTERM), and waits until it has.
    pub fn terminate(&mut self) -> Result<()> {
        let id = i32::try_from(self.id()).ok().and_then(rustix::process::Pid::from_raw).context("no process id")?;
        rustix::process::kill_process(id, rustix::process::Signal::TERM)?;
        wait::until_true("its end", || Ok(self.exit_code()?.is_some())).map(drop)
    }

    /// Ends it at once (SIGKILL) and waits for its end.
    pub fn kill(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            let lines = self.stderr();
            let start = lines.len().saturating_sub(60);
            eprintln!("--- the last lines of {}:", self.name);
            lines.iter().skip(start).for_each(|line| eprintln!("{line}"));
        }
    }
}

/// The lines of an output, which a thread collects.
#[derive(Debug, Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn collect(output: impl Read + Send + 'static) -> Self {
        let lines = Self::default();
        let sink = lines.clone();
        thread::spawn(move || {
            let mut reader = BufReader::new(output);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|size| size > 0) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                sink.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
                line.clear();
            }
        });
        lines
    }

    fn get(&self) -> Vec<String> {
        self.with(Vec::clone)
    }

    /// Whether the thread has reached the end of the output. It holds the lines as long as it reads.
    fn is_complete(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    fn with<T>(&self, look: impl FnOnce(&Vec<String>) -> T) -> T {
        look(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
