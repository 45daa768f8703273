//! An HTTP/1.1 client that sends exactly the bytes that it is told to: a well-behaved library would refuse many of the
//! requests that a filter must survive.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};

const PATIENCE: Duration = Duration::from_secs(20);
const MOST_HEADERS: usize = 256;

/// A request in bytes.
#[derive(Debug, Clone)]
pub struct Request {
    method: String,
    path: Vec<u8>,
    host: String,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    body: Option<Vec<u8>>,
    chunked: bool,
}

impl Request {
    /// A GET of a path.
    pub fn get(path: impl AsRef<[u8]>) -> Self {
        Self::new("GET", path)
    }

    /// A request of any method.
    pub fn new(method: &str, path: impl AsRef<[u8]>) -> Self {
        Self {
            method: method.to_owned(),
            path: path.as_ref().to_vec(),
            host: "localhost".to_owned(),
            headers: Vec::new(),
            body: None,
            chunked: false,
        }
    }

    /// Sets another path.
    #[must_use]
    pub fn at(mut self, path: impl AsRef<[u8]>) -> Self {
        self.path = path.as_ref().to_vec();
        self
    }

    /// Sets another host.
    #[must_use]
    pub fn host(mut self, host: &str) -> Self {
        host.clone_into(&mut self.host);
        self
    }

    /// Adds a body, with its length in a header.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Sends the body in chunks, without its length.
    #[must_use]
    pub fn chunked(self, body: impl Into<Vec<u8>>) -> Self {
        Self { chunked: true, ..self.body(body) }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.as_ref().to_vec(), value.as_ref().to_vec()));
        self
    }

    /// The method.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The path, with its query.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The headers, except those that frame the message.
    pub fn headers(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.headers
    }

    /// The body; empty if it has none.
    pub fn content(&self) -> &[u8] {
        self.body.as_deref().unwrap_or_default()
    }

    fn encode(&self) -> Vec<u8> {
        let host = self.host.as_bytes();
        let mut bytes = [self.method.as_bytes(), b" ", &self.path, b" HTTP/1.1\r\nhost: ", host, b"\r\n"].concat();
        match &self.body {
            Some(_) if self.chunked => bytes.extend(b"transfer-encoding: chunked\r\n"),
            Some(body) => bytes.extend(format!("content-length: {}\r\n", body.len()).into_bytes()),
            None => {}
        }
        for (name, value) in &self.headers {
            bytes.extend([name.as_slice(), b": ", value, b"\r\n"].concat());
        }
        bytes.extend(b"\r\n");
        let body = self.body.as_deref().unwrap_or_default();
        if !self.chunked {
            bytes.extend(body);
            return bytes;
        }
        let (first, second) = body.split_at(body.len() / 2);
        for chunk in [first, second].into_iter().filter(|chunk| !chunk.is_empty()) {
            bytes.extend([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
        }
        bytes.extend(b"0\r\n\r\n");
        bytes
    }
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub struct Received {
    /// The status.
    pub status: u16,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, with what is not UTF-8 replaced.
    pub body: String,
}

impl Received {
    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(candidate, _)| candidate == name).map(|(_, value)| value.as_str())
    }

    /// All values of a header that the upstream got, if the answer is its echo.
    pub fn echoed(&self, name: &str) -> Vec<String> {
        let echo: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        let headers = echo.get("headers").and_then(|headers| headers.as_array()).cloned().unwrap_or_default();
        let pairs = headers.iter().filter_map(|pair| Some((pair.get(0)?.as_str()?, pair.get(1)?.as_str()?)));
        pairs.filter(|(candidate, _)| *candidate == name).map(|(_, value)| value.to_owned()).collect()
    }
}

/// A connection that is kept between requests, and opened again when the other side has closed it.
#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

impl Client {
    /// A client of one server.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, stream: None }
    }

    /// Sends a request and reads the answer to its end.
    pub fn send(&mut self, request: &Request) -> Result<Received> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        stream.get_mut().write_all(&request.encode())?;
        let answer = read_answer(&mut stream)?;
        if answer.header("connection") != Some("close") {
            self.stream = Some(stream);
        }
        Ok(answer)
    }

    /// Sends bytes as they are on a connection of their own, and reads the answer to its end.
    pub fn send_raw(&self, bytes: &[u8]) -> Result<Received> {
        let mut stream = self.connect()?;
        stream.get_mut().write_all(bytes)?;
        read_answer(&mut stream)
    }

    /// A GET without headers.
    pub fn get(&mut self, path: &str) -> Result<Received> {
        self.send(&Request::get(path))
    }

    fn connect(&self) -> Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect_timeout(&self.address, PATIENCE)
            .with_context(|| format!("cannot connect to {}", self.address))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(BufReader::new(stream))
    }
}

fn read_answer(stream: &mut BufReader<TcpStream>) -> Result<Received> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let size = stream.read_until(b'\n', &mut head).context("no answer")?;
        ensure!(size > 0, "the connection was closed before the answer was whole");
    }
    let mut space = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Response::new(&mut space);
    ensure!(parsed.parse(&head)?.is_complete(), "the answer's head is not whole");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers: Vec<_> =
        parsed.headers.iter().map(|header| (header.name.to_ascii_lowercase(), text(header.value))).collect();
    let status = parsed.code.context("the answer has no status")?;
    let mut answer = Received { status, headers, body: String::new() };
    answer.body = text(&read_body(stream, &answer)?);
    Ok(answer)
}

fn read_body(stream: &mut BufReader<TcpStream>, head: &Received) -> Result<Vec<u8>> {
    if head.header("transfer-encoding") == Some("chunked") {
        return read_chunks(stream);
    }
    let size = head.header("content-length").unwrap_or("0").parse()?;
    let mut body = vec![0; size];
    stream.read_exact(&mut body)?;
    Ok(body)
}

fn read_chunks(stream: &mut BufReader<TcpStream>) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = Vec::new();
        stream.read_until(b'\n', &mut line)?;
        let Ok(httparse::Status::Complete((_, size))) = httparse::parse_chunk_size(&line) else {
            bail!("`{}` is not the size of a chunk", String::from_utf8_lossy(&line));
        };
        let start = body.len();
        let end = start + usize::try_from(size)?;
        body.resize(end + 2, 0);
        stream.read_exact(body.get_mut(start..).context("no room for the chunk")?)?;
        body.truncate(end);
        if size == 0 {
            return Ok(body);
        }
    }
}
