//! A key server: publishes a document over HTTP, or fails in the ways in which servers fail.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::Result;

/// How it behaves.
#[derive(Debug, Clone)]
pub enum Mood {
    /// It publishes this document.
    Serving(String),
    /// It answers 503.
    Failing,
    /// It answers with a page for people.
    Confused,
    /// It closes every connection at once.
    Closing,
    /// It takes connections and says nothing.
    Silent,
}

/// A running key server. Dropping it ends it.
#[derive(Debug)]
pub struct KeyServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    mood: Mutex<Mood>,
    asked: AtomicUsize,
    stop: AtomicBool,
}

impl KeyServer {
    /// Starts one on a free port.
    pub fn start(mood: Mood) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let shared =
            Arc::new(Shared { mood: Mutex::new(mood), asked: AtomicUsize::new(0), stop: AtomicBool::new(false) });
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            let mut silent = Vec::new();
            for stream in listener.incoming() {
                if own.stop.load(Ordering::Relaxed) {
                    break;
                }
                own.asked.fetch_add(1, Ordering::Relaxed);
                let mood = own.mood.lock().unwrap_or_else(PoisonError::into_inner).clone();
                match (stream, mood) {
                    (Ok(stream), Mood::Silent) => silent.push(stream),
                    // A caller that does not wait for the answer is its own affair.
                    (Ok(stream), mood) => drop(answer(stream, &mood)),
                    (Err(_), _) => {}
                }
            }
        });
        Ok(Self { address, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes how it behaves.
    pub fn set(&self, mood: Mood) {
        *self.shared.mood.lock().unwrap_or_else(PoisonError::into_inner) = mood;
    }

    /// How often it was connected to.
    pub fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::Relaxed)
    }
}

impl Drop for KeyServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Wakes it up, to see that.
        let _ = TcpStream::connect(self.address);
    }
}

fn answer(mut stream: TcpStream, mood: &Mood) -> Result<()> {
    let (status, body) = match mood {
        Mood::Serving(body) => ("200 OK", body.as_str()),
        Mood::Failing => ("503 Service Unavailable", "later"),
        Mood::Confused => ("200 OK", "<html>We are being maintained.</html>"),
        Mood::Closing | Mood::Silent => return Ok(()),
    };
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut reader = BufReader::new(&stream);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let size = body.len();
    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {size}\r\nconnection: close\r\n\r\n{body}")?;
    Ok(())
}
