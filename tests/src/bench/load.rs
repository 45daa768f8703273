//! The load: the same request again and again over a few kept connections, by one thread that waits in blocking reads.
//!
//! Every connection but the one that is being read has a request in progress, and they are read in turn. So the client
//! does the same in every round, whatever the scheduler does.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};

use super::policies::{KEY, KEY_HEADER, route_path};

const PATIENCE: Duration = Duration::from_secs(20);
const MOST_HEADERS: usize = 32;

/// A request: the first route, with the key, as a small API client sends it.
fn request(token: Option<&str>) -> Vec<u8> {
    let path = route_path(0);
    let token = token.map(|token| format!("authorization: {token}\r\n")).unwrap_or_default();
    format!(
        "GET {path} HTTP/1.1\r\nhost: bench.example\r\nuser-agent: postern-bench/1\r\naccept: application/json\r\n\
         accept-encoding: gzip, deflate\r\n{token}{KEY_HEADER}: {KEY}\r\n\r\n"
    )
    .into_bytes()
}

/// Connections to one Envoy.
pub(super) struct Load {
    /// Sent in turn.
    requests: Vec<Vec<u8>>,
    sent: usize,
    connections: Vec<Connection>,
}

impl Load {
    /// Opens the connections. Each request has the next of these tokens.
    pub(super) fn open(address: SocketAddr, connections: u32, tokens: &[String]) -> Result<Self> {
        let connections = (0..connections).map(|_| Connection::open(address)).collect::<Result<_>>()?;
        let requests = match tokens {
            [] => vec![request(None)],
            tokens => tokens.iter().map(|token| request(Some(token))).collect(),
        };
        Ok(Self { requests, sent: 0, connections })
    }

    /// Sends this many requests. An answer that is not a 200 is an error once all have come.
    pub(super) fn send(&mut self, requests: u32) -> Result<()> {
        let count = self.connections.len();
        let requests = usize::try_from(requests)?.max(count);
        for place in 0..count {
            self.write(place)?;
        }
        let mut unexpected = Vec::new();
        for received in 0..requests {
            let connection = self.connections.get_mut(received % count).context("no connection")?;
            let status = connection.read()?;
            if status != 200 {
                unexpected.push(status);
            }
            if received + count < requests {
                self.write(received % count)?;
            }
        }
        ensure!(
            unexpected.is_empty(),
            "{} of {requests} answers were not 200 but, for one, {}",
            unexpected.len(),
            unexpected.first().copied().unwrap_or_default()
        );
        Ok(())
    }

    /// Sends the next request on a connection.
    fn write(&mut self, connection: usize) -> Result<()> {
        let request = self.requests.get(self.sent % self.requests.len().max(1)).context("no request")?;
        self.sent = self.sent.wrapping_add(1);
        self.connections.get_mut(connection).context("no connection")?.write(request)
    }
}

struct Connection {
    stream: TcpStream,
    buffer: [u8; 4096],
}

impl Connection {
    fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, buffer: [0; 4096] })
    }

    fn write(&mut self, request: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(request)?)
    }

    /// Reads one whole answer and returns its status. With one request under way, nothing can come after it.
    fn read(&mut self) -> Result<u16> {
        let mut filled = 0;
        loop {
            let space = self.buffer.get_mut(filled..).unwrap_or_default();
            ensure!(!space.is_empty(), "an answer is larger than expected");
            let size = self.stream.read(space).context("no answer")?;
            ensure!(size > 0, "the connection was closed before the answer was whole");
            filled += size;
            if let Some(status) = whole(self.buffer.get(..filled).unwrap_or_default())? {
                return Ok(status);
            }
        }
    }
}

/// The status, once the answer is whole.
fn whole(bytes: &[u8]) -> Result<Option<u16>> {
    let mut space = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut answer = httparse::Response::new(&mut space);
    let httparse::Status::Complete(head) = answer.parse(bytes)? else { return Ok(None) };
    let length = answer.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let Some(length) = length else { bail!("an answer has no content-length") };
    let length: usize = std::str::from_utf8(length.value)?.parse()?;
    Ok((bytes.len() >= head + length).then_some(answer.code.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_a_whole_answer() {
        let answer = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nno";
        for end in 0..answer.len() {
            assert_eq!(whole(&answer[..end]).unwrap(), None, "{end}");
        }
        assert_eq!(whole(answer).unwrap(), Some(401));
    }
}
