//! A service that answers every request with its own name and what it got, in JSON.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use anyhow::Result;
use serde_json::json;

/// A running service. Dropping it ends it.
#[derive(Debug)]
pub struct Echo {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
}

impl Echo {
    /// Starts one on a free port.
    pub fn start(name: &str) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let echo = Self { address: listener.local_addr()?, stopped: Arc::default() };
        let (name, stopped) = (name.to_owned(), Arc::clone(&echo.stopped));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let name = name.clone();
                thread::spawn(move || serve(stream, &name));
            }
        });
        Ok(echo)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(stream: TcpStream, name: &str) {
    let _ = stream.set_nodelay(true);
    let mut reader = BufReader::new(stream);
    while let Some(answer) = answer(&mut reader, name) {
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", answer.len());
        if reader.get_mut().write_all(&[head.as_bytes(), answer.as_bytes()].concat()).is_err() {
            break;
        }
    }
}

fn answer(reader: &mut impl BufRead, name: &str) -> Option<String> {
    let line = line(reader)?;
    let mut headers = Vec::new();
    loop {
        let text = self::line(reader)?;
        let Some((name, value)) = text.split_once(':') else { break };
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let header = |name: &str| headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
    let body = match header("content-length") {
        Some(length) => {
            let mut body = vec![0; length.parse().ok()?];
            reader.read_exact(&mut body).ok()?;
            body
        }
        None if header("transfer-encoding").is_some() => chunks(reader)?,
        None => Vec::new(),
    };
    let mut parts = line.splitn(3, ' ');
    let (method, path) = (parts.next()?, parts.next()?);
    let body = String::from_utf8_lossy(&body);
    Some(json!({ "service": name, "method": method, "path": path, "headers": headers, "body": body }).to_string())
}

/// A line without its end; `None` at the end of the connection.
fn line(reader: &mut impl BufRead) -> Option<String> {
    let mut bytes = Vec::new();
    let size = reader.read_until(b'\n', &mut bytes).ok()?;
    (size > 0).then(|| String::from_utf8_lossy(&bytes).trim_end_matches(['\r', '\n']).to_owned())
}

fn chunks(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let size = usize::from_str_radix(&line(reader)?, 16).ok()?;
        let mut chunk = vec![0; size];
        reader.read_exact(&mut chunk).ok()?;
        line(reader)?;
        if size == 0 {
            return Some(body);
        }
        body.extend(chunk);
    }
}
